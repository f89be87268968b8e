"""Property tests over HTTP: arbitrary arrays and JSON get an answer, or a 4xx with a reason."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.app.client import Client, serving
from tests.app.pictures import npy, npz
from tests.fuzz.data import CHANGES, changed

STORE = Path(__file__).parents[3] / "model_store"
SMALL = ("add", "bytes", "flags", "ints", "one", "open", "waves")
STORED = {"digits": (1, 1, 16, 16), "shapes": (1, 3, 128, 128), "superres": (1, 3, 12, 10)}
CODES = {"invalid_request", "input_mismatch", "too_large", "unsupported_media_type"}
CASES = 60

# As Python writes them; beside numbers all that JSON has, and what only looks like it.
ITEMS = (
    "0", "1", "-1", "1.5", "NaN", "Infinity", "-Infinity", "null", "true", '"x"', '""', "{}", "[]", "[[]]", "[[],[]]",
    "1e999", "-1e999", "1" + "0" * 400, "9223372036854775808", '"1"', '{"data": [1], "shape": [1]}', "[1, [2]]",
    '{"dtype": "float32", "shape": [-1], "data": []}', "[null]", '["a", 1]', "1e-320",
)  # fmt: skip


@pytest.fixture(scope="module")
def stored() -> Iterator[Client]:
    with serving(STORE, threads=1) as client:
        yield client


def check(answer: httpx.Response, sent: object) -> None:
    """Check that a request is answered or refused with a reason."""
    if answer.status_code == 200:
        return
    assert 400 <= answer.status_code < 500, f"{sent}: {answer.status_code} {answer.text[:400]}"
    error = answer.json()["error"]
    assert error["code"] in CODES and len(error["message"]) > 10, f"{sent}: {answer.text[:400]}"


def nested(rng: random.Random, depth: int = 0) -> str:
    """Generate JSON of any nesting."""
    if depth > 3 or rng.random() < 0.3:
        return rng.choice(ITEMS)
    return f"[{', '.join(nested(rng, depth + 1) for _ in range(rng.randrange(4)))}]"


def sendable(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype != object


@pytest.mark.parametrize("model", SMALL)
def test_any_json_is_answered_or_refused_in_words(zoo: Client, model: str) -> None:
    _send_json(zoo, model, random.Random(model))


@pytest.mark.parametrize("model", STORED)
def test_any_json_to_the_models_of_the_store_is_answered_or_refused_in_words(stored: Client, model: str) -> None:
    _send_json(stored, model, random.Random(model))


def _send_json(client: Client, model: str, rng: random.Random) -> None:
    for _ in range(CASES):
        inputs = nested(rng) if rng.random() < 0.7 else f'{{"{rng.choice(["in0", "x", ""])}": {nested(rng)}}}'
        body = f'{{"inputs": {inputs}}}' if rng.random() < 0.9 else inputs
        headers = {"content-type": "application/json"}
        check(client.post(f"/models/{model}/infer", content=body.encode(), headers=headers), body)


@pytest.mark.parametrize("model", SMALL)
def test_any_array_is_answered_or_refused_in_words(zoo: Client, model: str) -> None:
    dtype = {"bytes": np.uint8, "flags": np.bool_, "ints": np.int64}.get(model, np.float32)
    _send_arrays(zoo, model, np.ones((2, 3), dtype), random.Random(model))


@pytest.mark.parametrize("model", STORED)
def test_any_array_to_the_models_of_the_store_is_answered_or_refused_in_words(stored: Client, model: str) -> None:
    _send_arrays(stored, model, np.ones(STORED[model], np.float32), random.Random(model))


def _send_arrays(client: Client, model: str, plain: np.ndarray, rng: random.Random) -> None:
    cases = [[name] for name in CHANGES] + [rng.choices(list(CHANGES), k=2) for _ in range(CASES)]
    for names in cases:
        [array] = changed([plain], [[0, name] for name in names])
        if not sendable(array):
            continue
        body, kind = (npy(array), "npy") if rng.random() < 0.7 else (npz(array), "npz")
        headers = {"content-type": "application/x-npy" if kind == "npy" else "application/x-npz"}
        check(client.post(f"/models/{model}/infer", content=body, headers=headers), (names, kind, array.dtype))
        if array.size < 1000 and array.dtype.kind in "biuf":
            text = json.dumps({"inputs": [array.tolist()]})
            answer = client.post(
                f"/models/{model}/infer", content=text.encode(), headers={"content-type": "application/json"}
            )
            check(answer, (names, "json"))
