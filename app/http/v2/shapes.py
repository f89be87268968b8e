"""The shapes of the protocol's messages, for the OpenAPI document. Nothing is validated against them at run time."""

from __future__ import annotations

from typing import Any, Final

from app.protocol.v2.ports import NAMES

Schema = dict[str, Any]

_MOST: Final = 2**63 - 1
_TEXT: Final[Schema] = {"type": "string"}
_NAME: Final[Schema] = {"type": "string", "minLength": 1}
_OBJECT: Final[Schema] = {"type": "object"}
_FLAG: Final[Schema] = {"type": "boolean"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": _MOST}
# A null stands for what is left out.
_PARAMETERS: Final[Schema] = {"type": ["object", "null"]}


def _object(required: str, /, **known: Schema) -> Schema:
    """An object; required: names of what is always there, by blanks."""
    return {"type": "object", "required": required.split(), "properties": known}


def _closed(**known: Schema) -> Schema:
    """An object of nothing else; each may be left out."""
    return {"type": "object", "additionalProperties": False, "properties": known}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_SENT: Final = _object(
    "name shape datatype",
    name=_NAME,
    shape={**_list(_COUNT), "maxItems": 32},
    datatype={"type": "string", "enum": [*NAMES], "example": "FP32"},
    parameters=_PARAMETERS,
    data={"type": "array", "items": {}, "description": "flat or nested; left out where the bytes follow"},
)
_WANTED: Final = _object("name", name=_NAME, parameters=_PARAMETERS)
_FOUND: Final = _object(
    "name shape datatype", name=_TEXT, shape=_list(_COUNT), datatype=_TEXT, parameters=_OBJECT, data=_list({})
)
_PORT: Final = _object("name datatype shape", name=_TEXT, datatype=_TEXT, shape=_list({"type": "integer"}))
_REGION: Final = _object("name key offset byte_size", name=_TEXT, key=_TEXT, offset=_COUNT, byte_size=_COUNT)
_VERSION_STATE: Final = _object("name version state reason", name=_TEXT, version=_TEXT, state=_TEXT, reason=_TEXT)
_LIVE: Final = _object("live", live=_FLAG)
_READY: Final = _object("ready", ready=_FLAG)
_STATISTICS: Final = _object("model_stats", model_stats=_list(_object("name version", name=_TEXT, version=_TEXT)))

ERROR: Final = _object("error", error=_TEXT)
OBJECT: Final = _OBJECT
VERSION: Final[Schema] = {"type": "string", "pattern": "^([1-9][0-9]{0,8}|[A-Za-z][A-Za-z0-9._-]{0,63})$"}
REQUEST: Final = _object(
    "inputs",
    id={"type": ["string", "null"]},
    parameters=_PARAMETERS,
    inputs={**_list(_SENT), "minItems": 1},
    outputs=_list(_WANTED),
)
REGISTER: Final = _object("key byte_size", key=_NAME, offset=_COUNT, byte_size={**_COUNT, "minimum": 1})
INDEX: Final = _object("", ready={"type": ["boolean", "null"]})
LOGGING: Final = _closed(
    log_file={"type": "string", "const": ""},
    log_info=_FLAG,
    log_warning=_FLAG,
    log_error=_FLAG,
    log_verbose_level={"type": "integer", "minimum": 0},
    log_format={"type": "string", "const": "default"},
)
_LEVELS: Final[Schema] = {"type": "array", "items": {"enum": ["OFF", "TIMESTAMPS"]}, "minItems": 1}
TRACE: Final = _closed(
    trace_file={"enum": ["", None]},
    trace_level={"oneOf": [_LEVELS, {"type": "null"}]},
    trace_rate={"type": ["string", "null"], "pattern": "^[1-9][0-9]{0,8}$"},
    trace_count={"type": ["string", "null"], "pattern": "^(-1|[0-9]{1,9})$"},
    log_frequency={"enum": ["0", None]},
)
# Members beside parameters are ignored, as everywhere in the protocol; parameters that nobody knows are not.
LOAD: Final = _object("", parameters={**_closed(config={"type": ["string", "null"]}), "type": ["object", "null"]})
UNLOAD: Final = _object(
    "", parameters={**_closed(unload_dependents={"type": ["boolean", "null"]}), "type": ["object", "null"]}
)

# What is answered, by the end of the path: the first that fits.
ANSWERS: Final[tuple[tuple[str, Schema | None], ...]] = (
    ("/v2", _object("name version extensions", name=_TEXT, version=_TEXT, extensions=_list(_TEXT))),
    ("/health/live", _LIVE),
    ("/ready", _READY),
    ("/v2/models", _object("models", models=_list(_TEXT))),
    ("/stats", _STATISTICS),
    ("/repository/index", _list(_VERSION_STATE)),
    ("/infer", _object("model_name model_version outputs", model_name=_TEXT, model_version=_TEXT, id=_TEXT,
                       outputs=_list(_FOUND))),
    ("/status", _list(_REGION)),
    ("/config", _object("name input output", name=_TEXT, input=_list(_OBJECT), output=_list(_OBJECT))),
    ("register", None),
    ("load", None),
    ("/logging", LOGGING),
    ("/setting", TRACE),
    ("", _object("name versions platform inputs outputs", name=_TEXT, versions=_list(_TEXT), platform=_TEXT,
                 inputs=_list(_PORT), outputs=_list(_PORT))),
)  # fmt: skip
