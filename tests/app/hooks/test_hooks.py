"""Calls of hooks: conversion and checks of what they return, errors, and interruption at the deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import engine
from app.errors import DeadlineExceededError, HookFailedError, InputMismatchError, InvalidRequestError
from app.hooks.hooks import Hooks
from app.hooks.request import HookRequest
from app.memory.reservation import MemoryBudget
from app.signature import Signature
from tests.app.pictures import png

SIGNATURE = Signature(
    inputs=[
        engine.Port(name="x", operand="x", spec=engine.TensorSpec((None, 3), np.dtype(np.float32))),
        engine.Port(name="n", operand="n", spec=engine.TensorSpec((1,), np.dtype(np.int64))),
    ],
    outputs=[engine.Port(name="y", operand="y", spec=engine.TensorSpec((None, 2), np.dtype(np.float32)))],
)
LOOP_S = 60.0


def inputs_of(preprocess: Callable[[HookRequest], Any], body: bytes = b"") -> dict[str, Any]:
    request = HookRequest(body=memoryview(body), max_pixels=100)
    return dict(Hooks("m", preprocess, None).inputs(request, SIGNATURE))


def answer_of(postprocess: Callable[[dict[str, Any]], Any], **outputs: Any) -> Any:
    return Hooks("m", None, postprocess).answer(outputs)


def test_what_preprocess_returns_becomes_arrays_of_the_inputs_dtypes() -> None:
    inputs = inputs_of(lambda request: {"x": [[1, 2, 3]], "n": np.int64([4])})
    assert inputs["x"].dtype == np.float32 and inputs["x"].tolist() == [[1, 2, 3]]
    assert inputs["n"].dtype == np.int64


def test_a_request_has_its_body_as_json_or_as_a_picture() -> None:
    seen = []
    inputs_of(lambda r: seen.append(r.json()) or {"x": [[0, 0, 0]], "n": [1]}, b'{"a": [1, 2.5]}')
    inputs_of(lambda r: seen.append(np.asarray(r.image("L")).shape) or {"x": [[0, 0, 0]], "n": [1]}, png(8, 6))
    assert seen == [{"a": [1, 2.5]}, (6, 8)]


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (None, "preprocess: found NoneType, expected a dict of arrays by input name"),
        ([[1.0]], "found list, expected a dict"),
        ({"x": [[1, 2, 3]]}, "found no array for 'n', expected all inputs"),
        ({"x": [[1, 2, 3]], "n": [1], "z": 0}, "input 'z': not found in the model, expected 'x', 'n'"),
        ({"x": [[1, 2, 3]], "n": [1], 7: 0}, "input 7: not found"),
        ({"x": [[1, 2, 3]], "n": [0.5]}, "input 'n': found float64, expected"),
        ({"x": "text", "n": [1]}, "input 'x': found"),
        ({"x": [[1], [2, 3]], "n": [1]}, "input 'x': found list"),
        ({"x": [[1j, 2, 3]], "n": [1]}, "input 'x': found complex128"),
    ],
)
def test_what_does_not_fit_the_model_is_a_failure_of_the_hook(returned: Any, problem: str) -> None:
    with pytest.raises(HookFailedError, match=problem):
        inputs_of(lambda request: returned)


def test_a_hook_that_raises_is_logged_and_the_client_gets_the_type_only(caplog: pytest.LogCaptureFixture) -> None:
    def postprocess(outputs: dict[str, Any]) -> Any:
        raise KeyError("secret")

    with pytest.raises(HookFailedError) as caught:
        answer_of(postprocess)
    assert str(caught.value) == "hooks.py: postprocess raised KeyError; the server's log says more"
    assert "secret" in caplog.text


@pytest.mark.parametrize(
    "error", [SystemExit(1), KeyboardInterrupt(), MemoryError(), RecursionError(), StopIteration()]
)
def test_a_hook_may_raise_anything(error: BaseException) -> None:
    def postprocess(outputs: dict[str, Any]) -> Any:
        raise error

    with pytest.raises(HookFailedError, match=type(error).__name__):
        answer_of(postprocess)


def test_a_hook_may_refuse_a_request() -> None:
    def preprocess(request: HookRequest) -> Any:
        raise request.Refused("expected an object with 'x'")

    with pytest.raises(InputMismatchError, match="^expected an object with 'x'$"):
        inputs_of(preprocess)


def test_errors_of_the_request_itself_reach_the_client() -> None:
    with pytest.raises(InvalidRequestError, match="JSON"):
        inputs_of(lambda request: request.json(), b"{")
    with pytest.raises(InvalidRequestError, match="picture"):
        inputs_of(lambda request: request.image(), b"no picture")


def test_the_answer_is_what_postprocess_returns() -> None:
    answer = answer_of(lambda o: {"best": o["y"].argmax(), "y": o["y"], "list": [1, None]}, y=np.float32([1, 3]))
    assert answer == {"best": 1, "y": [1.0, 3.0], "list": [1, None]}


@pytest.mark.parametrize("returned", [object(), {1, 2}, {"x": object()}, 2**70, np.array([1j]), {(1, 2): 3}])
def test_an_answer_that_json_cannot_represent_is_a_failure_of_the_hook(returned: Any) -> None:
    with pytest.raises(HookFailedError, match="the answer cannot be written as JSON"):
        answer_of(lambda outputs: returned)


def test_a_list_that_contains_itself_is_a_failure_of_the_hook() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(HookFailedError, match="the answer cannot be written as JSON"):
        answer_of(lambda outputs: endless)


def test_a_hook_that_does_not_end_is_interrupted_at_the_deadline() -> None:
    def postprocess(outputs: dict[str, Any]) -> Any:
        end = time.monotonic() + LOOP_S
        while time.monotonic() < end:
            try:
                pass
            except Exception:  # a handler of errors does not see the interruption
                return None
        return "ended by itself"

    budget = MemoryBudget(1 << 20)
    reservation = budget.open()
    began = time.monotonic()
    with reservation, reservation.working(lambda: time.monotonic() > began + 0.1), pytest.raises(DeadlineExceededError):
        answer_of(postprocess)
    assert time.monotonic() - began < LOOP_S / 2


def test_an_interruption_hits_only_the_hook_whose_request_is_over() -> None:
    budget, answers = MemoryBudget(1 << 20), list[str]()
    is_over = threading.Event()

    def postprocess(outputs: dict[str, Any]) -> Any:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            pass
        return "done"

    def request(limited: bool) -> None:
        reservation = budget.open()
        with reservation, reservation.working(is_over.is_set if limited else lambda: False):
            try:
                answers.append(answer_of(postprocess))
            except DeadlineExceededError:
                answers.append("late")

    threads = [threading.Thread(target=request, args=(limited,)) for limited in (True, False)]
    for thread in threads:
        thread.start()
    is_over.set()
    for thread in threads:
        thread.join(LOOP_S)
    assert sorted(answers) == ["done", "late"]
