"""Routes in the form of TorchServe, and of KServe V1 and TensorFlow Serving, for clients that move here.

Only the form of paths, bodies and answers differs from `/infer`; `docs/coming-from.md` tells which is which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.arrays import as_strings, is_text
from app.codec.answers import dump_json
from app.codec.json_body import parse_json
from app.codec.json_tensors import decode_inputs
from app.codec.message import read_version
from app.codec.numpy_files import portable
from app.codec.parse import parse
from app.errors import InvalidRequestError, VersionNotFoundError
from app.http.body import BodyRequest, dataplane, first_headers, respond
from app.http.model_request import Reply
from app.http.responses import json_response
from app.memory.reservation import charge
from app.messages import brief, cut, did_you_mean, quoted
from app.models.registry.version import State, Version
from app.models.request import InferRequest
from app.serving.dataplane import Answer, DataPlane

router = APIRouter(tags=["other servers"])
_JSON: Final = "application/json"
_KEYS: Final = ("instances", "inputs", "signature_name")
# Bytes of a Python number in a list of lists.
_NUMBER: Final = 40
Read = Callable[[bytearray], tuple[InferRequest, Callable[[Answer], Reply]]]


def _request(plane: DataPlane, headers: Mapping[bytes, bytes], version: Version, read: Read) -> BodyRequest[Any]:
    """Return a request whose path names the version."""
    return BodyRequest(plane, headers, read, lambda parsed: (version, *parsed), version)


def _documentation(summary: str, *content: str) -> dict[str, Any]:
    return {
        "summary": summary,
        "response_class": Response,
        "openapi_extra": {"requestBody": {"required": True, "content": {each: {} for each in content}}},
    }


@router.get("/ping", summary="Health, as TorchServe's")
async def ping(request: Request) -> Response:
    """Answer 500 until all models are loaded, as TorchServe does."""
    reason = dataplane(request).unready_reason()
    return json_response({"status": "Healthy" if reason is None else "Unhealthy"}, 200 if reason is None else 500)


_PREDICTION = _documentation("Run a model, as TorchServe's", _JSON, "image/*", "multipart/form-data")


@router.put("/predictions/{name}", **_PREDICTION)  # curl -T sends PUT, as TorchServe's documentation does
@router.post("/predictions/{name}", **_PREDICTION)
async def predict(request: Request, name: str) -> Response:
    """Take the body of `/infer`, and answer the prediction alone; probabilities of classes by label."""
    return await _predict(request, name, None)


@router.put("/predictions/{name}/{version}", **_PREDICTION)
@router.post("/predictions/{name}/{version}", **_PREDICTION)
async def predict_version(request: Request, name: str, version: str) -> Response:
    """As `/predictions/{name}`, with a version; of `2.0` the first number counts."""
    return await _predict(request, name, version.partition(".")[0])


async def _predict(request: Request, name: str, version: str | None) -> Response:
    plane, headers = dataplane(request), first_headers(request)
    found = plane.store.version(name, read_version(version))
    content_type = headers.get(b"content-type", b"").decode("latin-1")

    def read(body: bytearray) -> tuple[InferRequest, Callable[[Answer], Reply]]:
        message = parse(body, content_type, plane.settings)
        return InferRequest(decode=message.decode, parameters=message.parameters), _torchserve_reply

    return await respond(request, plane, _request(plane, headers, found, read))


def _torchserve_reply(answer: Answer) -> Reply:
    found = answer.result.predictions
    if found is None:
        values = [_nested(array) for array in answer.result.outputs.values()]
        return Reply([dump_json(values[0] if len(values) == 1 else values)], _JSON)
    items = [_torchserve_item(each) for each in found]
    return Reply([dump_json(items[0] if len(items) == 1 else items)], _JSON)


def _torchserve_item(finding: Any) -> Any:
    """Return classes as probabilities by label, boxes by label beside their score, anything else unchanged."""
    if isinstance(finding, list) and finding and "probability" in finding[0] and "label" in finding[0]:
        return {each["label"]: each["probability"] for each in finding}
    if isinstance(finding, list) and finding and "box" in finding[0]:
        return [{each["label"]: each["box"], "score": each["score"]} for each in finding]
    return finding


@router.get("/v1/models/{name}", summary="State of a model, as KServe's, TensorFlow Serving's and OpenAI's")
async def model(request: Request, name: str) -> Response:
    """The keys of all three in one answer."""
    entry = dataplane(request).store.entry(name)
    is_ready = entry.state is State.READY
    openai = {"id": entry.name, "object": "model", "created": 0, "owned_by": "pnnx-serve"}
    states = list(map(_state, entry.versions))
    return json_response({**openai, "name": entry.name, "ready": is_ready, "model_version_status": states})


@router.get("/v1/models/{name}/versions/{version}", summary="State of a version, as TensorFlow Serving's")
async def model_version(request: Request, name: str, version: str) -> Response:
    """As `/v1/models/{name}`, of one version."""
    entry, number = dataplane(request).store.entry(name), read_version(version)
    number = entry.number_of(number) if isinstance(number, str) else number
    states = [_state(each) for each in entry.versions if each.number == number]
    if not states:
        raise VersionNotFoundError(f"model '{entry.name}' has no version {number}", found=number)
    return json_response({"model_version_status": states})


def _state(version: Version) -> dict[str, Any]:
    state = {State.READY: "AVAILABLE", State.LOADING: "START"}.get(version.state, "END")
    return {"version": str(version.number), "state": state, "status": _OK}


_OK: Final = {"error_code": "OK", "error_message": ""}
_ROWS = _documentation("Run a model on rows, as KServe V1 and TensorFlow Serving", _JSON)


@router.post("/v1/models/{name}:predict", **_ROWS)
async def predict_rows(request: Request, name: str) -> Response:
    """Answer `{"predictions": [...]}` to `{"instances": [row, ...]}`, `{"outputs": ...}` to `{"inputs": columns}`."""
    return await _predict_rows(request, name, None)


@router.post("/v1/models/{name}/versions/{version}:predict", **_ROWS)
async def predict_rows_of_version(request: Request, name: str, version: str) -> Response:
    """As `/v1/models/{name}:predict`, with a version."""
    return await _predict_rows(request, name, version)


async def _predict_rows(request: Request, name: str, version: str | None) -> Response:
    plane = dataplane(request)
    found = plane.store.version(name, read_version(version))

    def read(body: bytearray) -> tuple[InferRequest, Callable[[Answer], Reply]]:
        document = parse_json(body)
        if not isinstance(document, dict) or ("instances" in document) == ("inputs" in document):
            raise InvalidRequestError('the body: expected {"instances": [row, ...]} or {"inputs": columns}')
        for key in document:
            if key not in _KEYS:
                raise InvalidRequestError(
                    f"unknown key '{cut(key)}'{did_you_mean(key, _KEYS)}, expected {quoted(_KEYS)}"
                )
        is_rows = "instances" in document
        values = _columns(document["instances"]) if is_rows else _images(document["inputs"])
        decode = partial(decode_inputs, values, settings=plane.settings)
        return InferRequest(decode=decode, parameters={}), _rows_reply if is_rows else _columns_reply

    return await respond(request, plane, _request(plane, first_headers(request), found, read))


def _columns(rows: object) -> object:
    """Return the rows of a batch as one value, or as one value for each input."""
    if not isinstance(rows, list) or not rows:
        raise InvalidRequestError(f"instances: found {brief(rows)}, expected a list with at least one row")
    if not isinstance(rows[0], dict) or set(rows[0]) == {"b64"}:
        return _images(rows)
    for index, row in enumerate(rows):
        if not isinstance(row, dict) or set(row) != set(rows[0]):
            raise InvalidRequestError(f"instances[{index}]: found {brief(row)}, expected the keys of the first row")
    return {name: _images([row[name] for row in rows]) for name in rows[0]}


def _images(value: object) -> object:
    """Return a value with bytes in the form of pictures."""
    if isinstance(value, dict) and set(value) == {"b64"}:
        return {"image": value["b64"]}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [_images(each) for each in value]
    if isinstance(value, dict):
        return {name: _images(each) for name, each in value.items()}
    return value


def _rows_reply(answer: Answer) -> Reply:
    found, outputs = answer.result.predictions, answer.result.outputs
    if found is not None:
        return Reply([dump_json({"predictions": list(found)})], _JSON)
    if len(outputs) == 1:
        (array,) = outputs.values()
        return Reply([dump_json({"predictions": _nested(array)})], _JSON)
    columns = {name: _nested(array) for name, array in outputs.items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return Reply([dump_json({"predictions": rows})], _JSON)


def _columns_reply(answer: Answer) -> Reply:
    found, outputs = answer.result.predictions, answer.result.outputs
    if found is not None:
        return Reply([dump_json({"outputs": list(found)})], _JSON)
    columns = {name: _nested(array) for name, array in outputs.items()}
    (first, *others) = columns.values()
    return Reply([dump_json({"outputs": columns if others else first})], _JSON)


def _nested(array: Any) -> Any:
    """Return an array as nested lists; NaN and infinities become null."""
    charge(_NUMBER * array.size)
    if is_text(array.dtype):
        return np.array(as_strings(array), object).reshape(array.shape).tolist()
    return portable(array).tolist()
