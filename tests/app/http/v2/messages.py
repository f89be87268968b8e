"""Handwritten messages of the protocol: a JSON object and the tensors after it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.app.client import Client

LENGTH = "inference-header-content-length"
NUMPY = {
    "BOOL": np.dtype(bool), "UINT8": np.dtype("u1"), "INT8": np.dtype("i1"), "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"), "INT64": np.dtype("<i8"), "FP16": np.dtype("<f2"), "BF16": np.dtype(ml_dtypes.bfloat16),
    "FP32": np.dtype("<f4"), "FP64": np.dtype("<f8"),
}  # fmt: skip


def tensor(name: str, datatype: str, array: NDArray[Any], **more: Any) -> dict[str, Any]:
    """Return an input as JSON."""
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": array.tolist(), **more}


def binary(name: str, datatype: str, array: NDArray[Any]) -> tuple[dict[str, Any], bytes]:
    """Return an input whose bytes follow, and these bytes."""
    row = {"name": name, "datatype": datatype, "shape": list(array.shape)}
    return {**row, "parameters": {"binary_data_size": array.nbytes}}, array.tobytes()


def send(client: Client, model: str, document: Any, tail: bytes = b"", **headers: str) -> httpx.Response:
    """Send a request, with the header for the tensors' offset if there are any."""
    head = json.dumps(document).encode()
    given = {LENGTH: str(len(head))} if tail else {}
    return client.post(f"/v2/models/{model}/infer", content=head + tail, headers={**given, **headers})


def received(response: httpx.Response) -> dict[str, NDArray[Any]]:
    """Return the outputs of an answer in any form."""
    assert response.status_code == 200, response.text
    length = int(response.headers.get(LENGTH, len(response.content)))
    head, tail = json.loads(response.content[:length]), response.content[length:]
    found: dict[str, NDArray[Any]] = {}
    for row in head["outputs"]:
        if "data" in row:
            found[row["name"]] = np.array(row["data"], NUMPY[row["datatype"]]).reshape(row["shape"])
            continue
        size = row["parameters"]["binary_data_size"]
        found[row["name"]] = np.frombuffer(tail[:size], NUMPY[row["datatype"]]).reshape(row["shape"])
        tail = tail[size:]
    assert not tail and (LENGTH in response.headers) == any("data" not in row for row in head["outputs"])
    return found


def refused(response: httpx.Response, status: int = 400) -> str:
    """Return the message of a refusal."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json" and list(response.json()) == ["error"]
    text = response.json()["error"]
    assert isinstance(text, str) and len(text) < 5000
    return text
