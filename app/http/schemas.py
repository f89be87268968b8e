"""Schemas of answers, and documentation of routes that run models.

Nothing is validated against them at run time. Routes that run models read their body raw, so that FastAPI cannot
document it; tasks document their parameters and predictions.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from pydantic import Field, create_model

from app.codec.parse import FORM, JSON, NPY, NPZ, PNG
from app.schema import Body
from app.tasks.registry import TASKS

VersionNumber = Annotated[
    str | None,
    Query(
        description="number or tag of the version; default: the highest",
        json_schema_extra={"pattern": "^([1-9][0-9]{0,8}|[A-Za-z][A-Za-z0-9._-]{0,63})$"},
    ),
]
"""Version in a query, which ``app.codec.message.read_version`` checks."""

# Documentation of an error. A reference, since FastAPI would process a model again for each route.
REFUSED: Final = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}}
_TENSOR: Final = {
    "oneOf": [
        {"type": "array", "items": {}, "description": "nested lists of numbers"},
        {"type": "number"},
        {
            "type": "object",
            "properties": {
                "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                "dtype": {"type": "string", "example": "float32"},
                "data": {"type": "array", "items": {}, "description": "flat or nested"},
                "b64": {"type": "string", "description": "base64 of the raw little-endian bytes, instead of data"},
            },
        },
        {
            "type": "object",
            "properties": {"image": {"type": "string", "description": "base64 of an encoded picture"}},
            "required": ["image"],
        },
    ]
}
_VERSION: Final = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": 999_999_999},
        {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9._-]{0,63}$"},
    ]
}
_JSON_BODY: Final = {
    "type": "object",
    "oneOf": [{"required": ["inputs"]}, {"required": ["image"]}],
    "additionalProperties": False,
    "properties": {
        "model": {"type": "string"},
        "version": _VERSION,
        "inputs": {
            "description": "one tensor for a model with one input, or an object of tensors by input name",
            "anyOf": [*_TENSOR["oneOf"], {"type": "object", "additionalProperties": _TENSOR}],
        },
        "image": {"type": "string", "description": "short for inputs that are a picture, in base64"},
        "outputs": {"type": "array", "items": {"type": "string"}, "description": "names of the outputs wanted"},
        "parameters": {"type": "object", "description": "as the query parameters of the model's task"},
    },
}
_FILE: Final = {"type": "string", "format": "binary"}
_TEXT: Final = {"type": "string"}
_ERRORS: Final = {
    400: "malformed request", 404: "unknown model or version", 406: "no format that Accept allows",
    413: "body, picture, tensor or batch too large", 415: "unknown Content-Type", 422: "does not fit the model",
    429: "too many requests are waiting", 500: "fault of the server", 503: "the model is not ready",
    504: "deadline exceeded",
}  # fmt: skip
_BODY: Final = {
    "required": True,
    "content": {
        JSON: {"schema": _JSON_BODY},
        FORM: {
            "schema": {
                "type": "object",
                "properties": {"file": {"type": "array", "items": _FILE, "description": "pictures, .npy or .npz"}},
            }
        },
        "image/*": {"schema": _FILE},
        NPY: {"schema": _FILE},
        NPZ: {"schema": _FILE},
    },
}
_TIMING: Final = {
    "queue_ms": 0.1, "decode_ms": 1.2, "preprocess_ms": 0.3, "infer_ms": 7.5, "postprocess_ms": 0.1, "total_ms": 9.2,
}  # fmt: skip


class Problem(Body):
    """Description of an error."""

    code: str = Field(description="Stable name of the error.", examples=["input_mismatch"])
    message: str = Field(description="Where, what was found, what was expected.")
    detail: dict[str, Any] | None = Field(None, description="The same for programs.")


class ErrorBody(Body):
    """Body of every error."""

    error: Problem


class Live(Body):
    """The process can answer."""

    live: Literal[True]


class Ready(Body):
    """Readiness of all models."""

    ready: Literal[True]


class PortRow(Body):
    """An input or output of a model."""

    name: str
    shape: list[int | None] | None = Field(description="null for a dynamic dimension; the first may be a batch.")
    dtype: str | None
    size_names: list[str | None] | None = Field(
        default=None, description="The file's names of dynamic dimensions; absent if it names none."
    )


class DefectRow(Body):
    """A compiler defect; operator and type are empty if it concerns the whole graph."""

    operator: str
    type: str
    error: str


class VersionRow(Body):
    """A version of a model; a ready one also has inputs, outputs and statistics.

    backend: ``compiled`` or ``reference``; compile_failure: why nothing could be compiled; remark: why the warm-up on
    zeros failed, though the version is ready.
    """

    version: int
    state: Literal["loading", "ready", "failed"]
    reason: str | None
    compiler_defects: list[DefectRow] | None = Field(
        default=None,
        description="In GET /models/{name}: unexpected compiler failures, at most 16.",
    )


class ModelRow(Body):
    """Summary of a model."""

    name: str
    task: str
    default: bool = Field(description="Whether requests that name no model go here.")
    state: Literal["loading", "ready", "failed", "unloaded"]
    reason: str | None
    tags: dict[str, int] = Field(description="Names of versions, with their numbers.")
    versions: list[VersionRow]


class ModelList(Body):
    """List of all models."""

    models: list[ModelRow]


class ModelDetails(ModelRow):
    """Details of a model."""

    inputs: list[PortRow]
    outputs: list[PortRow]
    labels: list[str] | None
    preprocess: dict[str, Any] | None
    batching: dict[str, Any] = Field(description="Whether requests share runs, the reason, and measurements.")
    steps: list[dict[str, Any]] | None = Field(None, description="Of a pipeline: the steps as in its file.")


class TensorBody(Body):
    """Tensor with flat data in row-major order."""

    shape: list[int]
    dtype: str
    data: list[Any]


class TimingBody(Body):
    """Stage times in milliseconds."""

    queue_ms: float
    decode_ms: float
    preprocess_ms: float
    infer_ms: float
    postprocess_ms: float
    total_ms: float
    steps_ms: dict[str, float] | None = Field(None, description="Of a pipeline: the time of each step that ran.")


class InferBody(Body):
    """Answer of an inference."""

    model: str
    version: int
    outputs: dict[str, TensorBody] | None = Field(None, description="For pictures only on request.")
    predictions: Any = None
    timing: TimingBody


def infer_body() -> type[InferBody]:
    """Return the schema of the answer of an inference, with the predictions of all tasks."""
    known = [task.FINDING for task in TASKS.values() if task.FINDING is not None]
    found: Any = functools.reduce(operator.or_, [*known, dict[str, Any]])
    text = "Depends on the model's task, by step for a pipeline; for a batch of several items a list."
    predictions: Any = (found | list[found] | None, Field(None, description=text))
    return create_model("InferBody", __base__=InferBody, __doc__=InferBody.__doc__, predictions=predictions)


def infer_documentation() -> dict[str, Any]:
    """Return the arguments of FastAPI's route decorator for routes that run models."""
    result = {
        "model": infer_body(),
        "description": "the result; a picture of it if the task has one",
        "content": {
            JSON: {"examples": _answers()},
            NPZ: {"schema": _FILE},
            NPY: {"schema": _FILE},
            PNG: {"schema": _FILE},
        },
    }
    errors = {status: {**REFUSED, "description": text} for status, text in _ERRORS.items()}
    return {
        "responses": {200: result, **errors},
        "openapi_extra": {"parameters": [*_parameters()], "requestBody": _BODY},
    }


def _answers() -> dict[str, Any]:
    """Return an example answer of every task."""
    return {
        name: {"summary": name, "value": {"model": "name", "version": 1, **task.EXAMPLE, "timing": _TIMING}}
        for name, task in TASKS.items()
    }


def _parameters() -> Iterator[dict[str, Any]]:
    yield _query("model", _TEXT, "name of the model; may be left out when there is one, or a default")
    yield _query("version", _VERSION, "version of the model, or a tag; the highest one without it")
    yield _query("outputs", _TEXT, "raw outputs: true, false, or names by comma; for pictures none by default")
    for task in TASKS.values():
        keys = task.CONFIG.model_json_schema().get("properties", {})
        for name, text in task.PARAMETERS.items():
            yield _query(name, {"type": _kind(keys[name])}, f"{task.NAME}: {text}")


def _query(name: str, schema: Mapping[str, Any], text: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": text}


def _kind(key: Mapping[str, Any]) -> str:
    """Return the JSON type of a key; the first if there are several."""
    return str(key["type"] if "type" in key else key["anyOf"][0]["type"])
