"""Requests that are sent, and the checks of their answers."""

from __future__ import annotations

import io
import itertools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

import engine
from benchmarks.soak.store import BATCHED, CONSTANT, STEPS

Array = np.ndarray[Any, np.dtype[Any]]
LENGTH = "inference-header-content-length"
# What is no fault where there is more to do than can be done, and what it must say then.
BUSY = (429, 503)


@dataclass(frozen=True)
class Request:
    """Body and expected answer.

    Args:
        wrong: what is wrong with an answer of the status that is expected; None where nothing is.
        also: other statuses that are right.
    """

    name: str
    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200
    wrong: Callable[[httpx.Response], str | None] = lambda _: None
    also: tuple[int, ...] = ()


def judge(request: Request, answer: httpx.Response) -> str | None:
    """Return the fault of an answer; None if there is none."""
    if answer.status_code in BUSY and "retry-after" in answer.headers:
        return None
    if answer.status_code in request.also:
        return None
    if answer.status_code != request.status:
        return f"{request.name}: {answer.status_code} {answer.text[:200]}"
    if request.status != 200:
        return None if "error" in answer.json() else f"{request.name}: no error in the body"
    problem = request.wrong(answer)
    return None if problem is None else f"{request.name}: {problem}"


def good_requests(models: Path) -> list[Request]:
    """Return requests of every form and several batch sizes, with the engine's answers."""
    session = engine.Session(engine.load(models / "digits" / "1" / "model.pnnx.param"))
    rng = np.random.default_rng(0)
    found: list[Request] = []
    for model, batch in itertools.product(("digits", BATCHED), (1, 2, 3, 8, 100)):
        own, v2 = f"/models/{model}/infer", f"/v2/models/{model}/infer"
        x = rng.standard_normal((batch, 1, 16, 16)).astype(np.float32)
        expected = session.run([x])[0]
        text = json.dumps({"inputs": x.tolist()}).encode()
        binary = _binary("in0", x)
        row = {"name": "in0", "datatype": "FP32", "shape": x.shape, "data": x.ravel().tolist()}
        v2_text = json.dumps({"inputs": [row]}).encode()
        found += [
            Request(f"{model} npy {batch}", own, _npy(x), _typed("application/x-npy"), wrong=_own(expected)),
            Request(f"{model} json {batch}", own, text, _typed("application/json"), wrong=_own(expected)),
            Request(f"{model} V2 {batch}", v2, v2_text, wrong=_v2(expected)),
            Request(f"{model} V2 binary {batch}", v2, *binary, wrong=_v2(expected)),
        ]
    for picture in sorted((models / "digits" / "examples").glob("*.png")):
        digit = picture.stem.split("-")[1]
        body = picture.read_bytes()
        found.append(Request(picture.stem, "/models/digits/infer", body, _typed("image/png"), wrong=_label(digit)))
    return found


def small_requests(chooser: random.Random) -> list[Request]:
    """Return requests for the models that change, are reloaded, or cache: all different, or many equal."""
    x = np.array([[chooser.randrange(10_000), chooser.randrange(10), 0]], np.float32)
    often = np.array([[chooser.randrange(40), 0, 0]], np.float32)
    sums = {value: x + value for value in (*STEPS, CONSTANT)}
    text = json.dumps({"inputs": x.tolist()}).encode()
    again = json.dumps({"inputs": often.tolist()}).encode()
    either = _own(*(sums[value] for value in STEPS))
    kind = _typed("application/json")
    return [
        Request("changing", "/models/changing/infer", text, kind, wrong=either),
        Request("visiting", "/models/visiting/infer", text, kind, wrong=_own(sums[CONSTANT]), also=(404,)),
        Request("remembered", "/models/remembered/infer", again, kind, wrong=_own(often + CONSTANT)),
    ]


def bad_requests(models: Path) -> list[Request]:
    """Return one bad request of every kind."""
    photo = next(iter(sorted((models / "digits" / "examples").glob("*.png")))).read_bytes()
    one = np.zeros((1, 1, 16, 16))
    huge = b'{"inputs": {"in0": {"shape": [1000000000], "dtype": "float32", "data": [1]}}}'
    head, headers = _binary("in0", one.astype(np.float32))
    own, v2 = "/models/digits/infer", "/v2/models/digits/infer"
    kind, npy, png = _typed("application/json"), _typed("application/x-npy"), _typed("image/png")
    return [
        Request("not json", own, b"{", kind, 400),
        Request("nan in json", own, b'{"inputs": [NaN]}', kind, 400),
        Request("deep json", own, b"[" * 100_000, kind, 400),
        Request("wrong rank", own, b'{"inputs": [1, 2]}', kind, 422),
        Request("wrong dtype", own, _npy(one), npy, 422),
        Request("wrong shape", own, _npy(np.zeros((1, 1, 3, 3), np.float32)), npy, 422),
        Request("truncated npy", own, _npy(one)[:-5], npy, 400),
        Request("truncated picture", own, photo[: len(photo) // 2], png, 400),
        Request("no picture", own, b"not a picture", png, 400),
        Request("unknown type", own, b"hello", _typed("text/plain"), 415),
        Request("unknown model", "/models/unknown/infer", b'{"inputs": [1]}', kind, 404),
        Request("huge shape", own, huge, kind, 413),
        Request("V2 without inputs", v2, b"{}", {}, 400),
        Request("V2 cut off", v2, head[:-7], headers, 400),
        Request("V2 unknown output", v2, b'{"inputs": [], "outputs": [{"name": "x"}]}', {}, 400),
    ]


def _typed(kind: str) -> dict[str, str]:
    return {"content-type": kind}


def _npy(array: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _binary(name: str, array: Array) -> tuple[bytes, dict[str, str]]:
    row = {"name": name, "datatype": "FP32", "shape": array.shape, "parameters": {"binary_data_size": array.nbytes}}
    head = json.dumps({"inputs": [row], "parameters": {"binary_data_output": True}}).encode()
    return head + array.tobytes(), {LENGTH: str(len(head))}


def _own(*expected: Array) -> Callable[[httpx.Response], str | None]:
    """Return a check that one of these is the value of ``outputs``."""

    def wrong(answer: httpx.Response) -> str | None:
        (output,) = answer.json()["outputs"].values()
        return _differs(np.array(output["data"], np.float32).reshape(output["shape"]), expected)

    return wrong


def _v2(expected: Array) -> Callable[[httpx.Response], str | None]:
    def wrong(answer: httpx.Response) -> str | None:
        length = int(answer.headers.get(LENGTH, len(answer.content)))
        (output,) = json.loads(answer.content[:length])["outputs"]
        tail = answer.content[length:]
        found = np.frombuffer(tail, np.float32) if tail else np.array(output["data"], np.float32)
        return _differs(found.reshape(output["shape"]), (expected,))

    return wrong


def _label(expected: str) -> Callable[[httpx.Response], str | None]:
    def wrong(answer: httpx.Response) -> str | None:
        found = answer.json()["predictions"][0]["label"]
        return None if found == expected else f"found {found}"

    return wrong


def _differs(found: Array, expected: tuple[Array, ...]) -> str | None:
    right = (each.shape == found.shape and np.allclose(found, each, rtol=1e-4, atol=1e-5) for each in expected)
    return None if any(right) else f"wrong values: {found.ravel()[:4].tolist()}"
