"""What the OpenAPI document says of routes that run models: they read their body raw, so FastAPI cannot know it.

What tasks take and find, the tasks say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.codec.parse import FORM, JSON, NPY, NPZ, PNG
from app.http.openapi.schemas import REFUSED, infer_body
from app.tasks.registry import TASKS

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
