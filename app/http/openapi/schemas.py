"""The shapes of answers, for the OpenAPI document. Nothing is validated against them at run time."""

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
        description="its number, or a tag; the highest one without it",
        json_schema_extra={"pattern": "^([1-9][0-9]{0,8}|[A-Za-z][A-Za-z0-9._-]{0,63})$"},
    ),
]
"""Of a query; what fits the pattern or not is said by ``app.codec.message.read_version``."""


class Problem(Body):
    """What went wrong."""

    code: str = Field(description="Stable name of the kind of error.", examples=["input_mismatch"])
    message: str = Field(description="Where, what was found, what was expected.")
    detail: dict[str, Any] | None = Field(None, description="The same for programs.")


class ErrorBody(Body):
    """The body of every error."""

    error: Problem


# What a route tells FastAPI of an error. Its model, given each time, would be looked through for each anew.
REFUSED: Final = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}}


class Live(Body):
    """The process answers."""

    live: Literal[True]


class Ready(Body):
    """Every model runs."""

    ready: Literal[True]


class PortRow(Body):
    """An input or output."""

    name: str
    shape: list[int | None] | None = Field(description="null for an open dimension; the first one may be any batch.")
    dtype: str | None
    size_names: list[str | None] | None = Field(
        default=None, description="What the file calls open dimensions; absent where it names none."
    )


class DefectRow(Body):
    """A defect of the compiler; operator and type are empty where it concerns the whole graph."""

    operator: str
    type: str
    error: str


class VersionRow(Body):
    """A version of a model; one that is ready has inputs, outputs and statistics as well.

    backend: what runs it, ``compiled`` or ``reference``; compile_failure: why nothing could be compiled; remark:
    why the warm-up on zeros failed, though the version is ready.
    """

    version: int
    state: Literal["loading", "ready", "failed"]
    reason: str | None
    compiler_defects: list[DefectRow] | None = Field(
        default=None,
        description="In GET /models/{name}: failures of the compiler that it does not foresee, at most 16.",
    )


class ModelRow(Body):
    """A model in short."""

    name: str
    task: str
    default: bool = Field(description="Whether requests that name no model go here.")
    state: Literal["loading", "ready", "failed", "unloaded"]
    reason: str | None
    tags: dict[str, int] = Field(description="Names that stand for versions, and for which.")
    versions: list[VersionRow]


class ModelList(Body):
    """All models."""

    models: list[ModelRow]


class ModelDetails(ModelRow):
    """A model in detail."""

    inputs: list[PortRow]
    outputs: list[PortRow]
    labels: list[str] | None
    preprocess: dict[str, Any] | None
    batching: dict[str, Any] = Field(description="Whether requests share runs, why, and what was measured.")


class TensorBody(Body):
    """A tensor; data is flat, in row-major order."""

    shape: list[int]
    dtype: str
    data: list[Any]


class TimingBody(Body):
    """Where the time went, in milliseconds."""

    queue_ms: float
    decode_ms: float
    preprocess_ms: float
    infer_ms: float
    postprocess_ms: float
    total_ms: float


class InferBody(Body):
    """The answer of an inference."""

    model: str
    version: int
    outputs: dict[str, TensorBody] | None = Field(None, description="For pictures only when asked for.")
    predictions: Any = None
    timing: TimingBody


def infer_body() -> type[InferBody]:
    """The answer of an inference, with what the tasks predict."""
    found: Any = functools.reduce(operator.or_, [task.FINDING for task in TASKS.values() if task.FINDING is not None])
    text = "By the model's task; for a batch of several items a list of what one item has."
    predictions: Any = (found | list[found] | None, Field(None, description=text))
    return create_model("InferBody", __base__=InferBody, __doc__=InferBody.__doc__, predictions=predictions)


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
    400: "malformed request", 404: "unknown model or version", 406: "no answer of the kind Accept asks for",
    413: "body, picture, tensor or batch too large", 415: "unknown Content-Type", 422: "does not fit the model",
    429: "too many requests are waiting", 500: "our fault", 503: "the model is not ready", 504: "too late",
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


def infer_documentation() -> dict[str, Any]:
    """What FastAPI's route decorator is told of a route that runs models."""
    result = {
        "model": infer_body(),
        "description": "the result; a picture of it where the task has one",
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
    """An answer of every task."""
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
    """The JSON type of a key; the first one where there are several."""
    return str(key["type"] if "type" in key else key["anyOf"][0]["type"])
