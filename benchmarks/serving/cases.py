"""Requests that are sent, and their models."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

_DECODINGS = 300
TENSOR = (1, 3, 224, 224)
_LENGTH = "Inference-Header-Content-Length"
_NAMED = "inputs"


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """Kind of request.

    Args:
        most: of the server's time for each request, as a multiple of the floor's; what is aimed at.
        is_picture: whether the body is one, whose decoding by Pillow belongs to the floor.
    """

    name: str
    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    most: float | None = None
    is_picture: bool = False

    def decode_us(self) -> float:
        """Return Pillow's processor time to decode the body in microseconds: the minimum of many."""
        return min(self._decode_us() for _ in range(_DECODINGS)) if self.is_picture else 0.0

    def _decode_us(self) -> float:
        start = time.thread_time()
        Image.open(io.BytesIO(self.body)).load()
        return (time.thread_time() - start) * 1e6

    def message(self, answer_bytes: int = 0) -> bytes:
        """Return the request's bytes; answer_bytes tells the floor how much to answer."""
        headers = {"Host": "server", "Content-Length": str(len(self.body)), **self.headers}
        if answer_bytes:
            headers["X-Answer-Bytes"] = str(answer_bytes)
        head = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        return f"POST {self.path} HTTP/1.1\r\n{head}\r\n".encode() + self.body


def cases(store: Path) -> Iterator[Case]:
    """Yield all cases; the digits are those of the project's store."""
    x = np.random.default_rng(0).random(TENSOR, np.float32)
    small = json.dumps({_NAMED: [[1.0, 2.0, 3.0]]}).encode()
    picture = next(iter(sorted((store / "digits" / "examples").glob("*.png")))).read_bytes()
    yield Case(name="small JSON", path="/models/small/infer", body=small, headers=_typed("application/json"), most=3)
    yield Case(name="small JSON, V2", path="/v2/models/small/infer", body=_v2_json(), most=3)
    yield Case(
        name="PNG of a digit", path="/models/digits/infer", body=picture, headers=_typed("image/png"), most=3,
        is_picture=True,
    )  # fmt: skip
    head = json.dumps(
        {
            "inputs": [
                {"name": "in0", "shape": TENSOR, "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    length = {_LENGTH: str(len(head))}
    yield Case(
        name="600 kB, V2 binary", path="/v2/models/large/infer", body=head + x.tobytes(), headers=length, most=1.6
    )
    npy = io.BytesIO()
    np.save(npy, x)
    both = {**_typed("application/x-npy"), "Accept": "application/x-npy"}
    yield Case(name="600 kB, .npy", path="/models/large/infer", body=npy.getvalue(), headers=both)
    tensor = json.dumps({_NAMED: x.tolist()}).encode()
    yield Case(
        name="1x3x224x224, JSON", path="/models/mean/infer", body=tensor, headers=_typed("application/json"), most=6
    )


def write_models(folder: Path, digits: Path) -> None:
    """Write the store of the benchmark: three models that compute next to nothing, and the digits."""
    shape = ",".join(map(str, TENSOR))
    _write(folder, "small", "(?,3)f32", "pnnx.Expression e 1 1 0 1 expr=add(@0,1.0)", "(?,3)f32")
    _write(folder, "large", f"({shape})f32", "pnnx.Expression e 1 1 0 1 expr=add(@0,1.0)", f"({shape})f32")
    _write(folder, "mean", f"({shape})f32", "torch.mean e 1 1 0 1 dim=(2,3) keepdim=False $input=0", "(1,3)f32")
    (folder / "digits").symlink_to(digits)


def _write(folder: Path, name: str, takes: str, operator: str, gives: str) -> None:
    lines = [
        f"pnnx.Input in0 0 1 0 #0={takes}",
        f"{operator} #0={takes} #1={gives}",
        f"pnnx.Output out 1 0 1 #1={gives}",
    ]
    version = folder / name / "1"
    version.mkdir(parents=True)
    (version / "model.pnnx.param").write_text("\n".join(["7767517", "3 2", *lines]) + "\n")
    # An archive without members.
    (version / "model.pnnx.bin").write_bytes(b"PK\5\6" + bytes(18))


def _v2_json() -> bytes:
    tensor = {"name": "in0", "shape": [1, 3], "datatype": "FP32", "data": [1.0, 2.0, 3.0]}
    return json.dumps({"inputs": [tensor]}).encode()


def _typed(media_type: str) -> dict[str, str]:
    return {"Content-Type": media_type}
