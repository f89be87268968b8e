"""Requests to a server and parsers of its answers, without I/O.

Predictions come from ``POST /models/{name}/infer`` as JSON, tensors from ``/v2/models/{name}/infer`` as bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import quote

import httpx
from numpy.typing import ArrayLike

from pnnx_client import tensors
from pnnx_client.errors import ServerError, from_answer
from pnnx_client.pictures import Picture, encoded, pictures_of
from pnnx_client.result import Result

T = TypeVar("T")
Inputs: TypeAlias = "Picture | Sequence[Picture] | ArrayLike | Mapping[str, ArrayLike]"

# Header with the length of the JSON before the bytes.
_LENGTH: Final = "Inference-Header-Content-Length"
_BYTES: Final = "application/octet-stream"
# The JSON is padded to a multiple of this, so that the server can use the first tensor in place.
_ALIGNED: Final = 64
# Alias of the first input of every model.
_FIRST: Final = "in0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """A request and the parser of its answer.

    Args:
        sent: keywords of ``httpx.Client.request``.
        reads: the parser; raises LookupError, TypeError or ValueError for an invalid answer.
    """

    method: str = "GET"
    path: str
    reads: Callable[[httpx.Response], T]
    sent: Mapping[str, Any] = field(default_factory=dict)

    def read(self, answer: httpx.Response) -> T:
        """Return the parsed answer.

        Raises:
            PnnxError: the answer is an error, or invalid.
        """
        if not answer.is_success:
            raise from_answer(answer)
        try:
            return self.reads(answer)
        except (LookupError, TypeError, ValueError) as exc:
            raise ServerError(f"{self.path}: the answer cannot be read: {exc!r}", status=answer.status_code) from exc


def infer(
    model: str,
    inputs: Inputs,
    *,
    version: int | str | None,
    outputs: Sequence[str] | bool | None,
    parameters: Mapping[str, Any] | None,
    predictions: bool | None,
    timeout: float | None,
) -> Call[Result]:
    """Return the call that runs a model, with the arguments of ``Client.infer``.

    Raises:
        TypeError: inputs without a datatype.
        ValueError: neither outputs nor predictions are requested.
        OSError: an image file cannot be read.
    """
    found = pictures_of(inputs)
    pictures = None if found is None else [encoded(picture) for picture in found]
    if predictions or (predictions is None and (pictures is not None or parameters)):
        body = _pictures_body(pictures) if pictures is not None else _arrays_body(inputs)
        return _predict(model, body, version, outputs, parameters or {})
    if outputs is False:
        raise ValueError("neither outputs nor predictions are requested")
    rows, tails = _pictures_rows(pictures) if pictures is not None else _arrays_rows(inputs)
    said = {**(parameters or {}), "binary_data_output": True}
    if timeout is not None:
        said["timeout"] = max(1, int(timeout * 1e6))  # the server stops then, too
    head: dict[str, Any] = {"inputs": rows, "parameters": said}
    if not isinstance(outputs, bool) and outputs is not None:
        head["outputs"] = [{"name": name} for name in outputs]
    return _run(model, head, tails, version)


def graph(model: str, format: str, *, version: int | str | None, profile: bool) -> Call[Any]:
    """Return the call for the graph of a model: a dict for json, else text."""
    params = {"format": format, "profile": profile, **({} if version is None else {"version": version})}
    reads = _json if format == "json" else _text
    return Call(path=f"/models/{quote(model, safe='')}/graph", reads=reads, sent={"params": params})


def models() -> Call[list[dict[str, Any]]]:
    """Return the call that lists all models."""
    return Call(path="/models", reads=lambda answer: list(answer.json()["models"]))


def model(name: str) -> Call[dict[str, Any]]:
    """Return the call that describes a model."""
    return Call(path=f"/models/{quote(name, safe='')}", reads=_json)


def health(what: str) -> Call[bool]:
    """Return the call for liveness or readiness."""
    return Call(path=f"/health/{what}", reads=lambda answer: bool(answer.json()[what]))


def _json(answer: httpx.Response) -> dict[str, Any]:
    return dict(answer.json())


def _text(answer: httpx.Response) -> str:
    return answer.text


# Predictions


def _predict(
    model: str,
    body: Mapping[str, Any],
    version: int | str | None,
    outputs: Sequence[str] | bool | None,
    parameters: Mapping[str, Any],
) -> Call[Result]:
    wanted = str(bool(outputs)).lower() if outputs is None or isinstance(outputs, bool) else ",".join(outputs)
    params = {**parameters, "outputs": wanted, **({} if version is None else {"version": version})}
    path = f"/models/{quote(model, safe='')}/infer"
    return Call(method="POST", path=path, reads=_predicted, sent={**body, "params": params})


def _pictures_body(pictures: Sequence[bytes]) -> dict[str, Any]:
    if len(pictures) == 1:
        return {"content": pictures[0], "headers": {"Content-Type": _BYTES}}
    return {"files": [(f"{index}", (f"{index}", data, _BYTES)) for index, data in enumerate(pictures)]}


def _arrays_body(inputs: Any) -> dict[str, Any]:
    kind = "application/x-npy"
    if not isinstance(inputs, Mapping):
        return {"content": tensors.to_npy(tensors.array_of(inputs)), "headers": {"Content-Type": kind}}
    files = [(name, tensors.to_npy(tensors.array_of(value))) for name, value in inputs.items()]
    return {"files": [(name, (f"{name}.npy", data, kind)) for name, data in files]}


def _predicted(answer: httpx.Response) -> Result:
    said = answer.json()
    return Result(
        model=said["model"],
        version=said["version"],
        outputs={
            name: tensors.from_numbers(tensor["data"], tensor["dtype"], tensor["shape"])
            for name, tensor in said.get("outputs", {}).items()
        },
        predictions=said.get("predictions"),
        timing=said["timing"],
    )


# Tensors: JSON followed by bytes


def _pictures_rows(pictures: Sequence[bytes]) -> tuple[list[dict[str, Any]], list[Any]]:
    tail = tensors.elements_to_bytes(pictures)
    return [_row(_FIRST, tensors.BYTES, [len(pictures)], len(tail))], [tail]


def _arrays_rows(inputs: Any) -> tuple[list[dict[str, Any]], list[Any]]:
    named = inputs if isinstance(inputs, Mapping) else {_FIRST: inputs}
    arrays = {name: tensors.array_of(value) for name, value in named.items()}
    rows = [_row(name, tensors.datatype_of(array), list(array.shape), array.nbytes) for name, array in arrays.items()]
    return rows, [tensors.to_bytes(array) for array in arrays.values()]


def _row(name: str, datatype: str, shape: list[int], size: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}


def _run(model: str, head: Mapping[str, Any], tails: Sequence[Any], version: int | str | None) -> Call[Result]:
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    which = "" if version is None else f"/versions/{version}"
    headers = {"Content-Type": _BYTES, _LENGTH: str(len(text))}
    return Call(
        method="POST",
        path=f"/v2/models/{quote(model, safe='')}{which}/infer",
        reads=_ran,
        sent={"content": b"".join([text, *tails]), "headers": headers},
    )


def _ran(answer: httpx.Response) -> Result:
    body = memoryview(answer.content)
    length = int(answer.headers.get(_LENGTH, len(body)))
    head, tail = json.loads(bytes(body[:length])), body[length:]
    outputs = {}
    for row in head["outputs"]:
        size = row["parameters"]["binary_data_size"]
        outputs[row["name"]] = tensors.from_bytes(tail[:size], row["datatype"], row["shape"])
        tail = tail[size:]
    return Result(model=head["model_name"], version=int(head["model_version"]), outputs=outputs)
