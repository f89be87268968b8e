"""Calls of a model's hooks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from app.arrays import dtype_name, is_text
from app.errors import HookFailedError, InputMismatchError, ServiceError
from app.hooks import HOOKS
from app.hooks.request import HookRequest, RefusedByHook
from app.hooks.watchdog import WATCHDOG
from app.memory.reservation import charge
from app.messages import brief, quoted, safe_text
from app.signature import Inputs, Signature, describe

log = logging.getLogger(__name__)

T = TypeVar("T")
_NUMBERS: Final = "biuf"


class Hooks:
    """Functions of one model's ``hooks.py``.

    Args:
        model: name of the model, for the log.
        preprocess: converts a ``HookRequest`` to inputs by name; None for the usual formats.
        postprocess: converts outputs by name to the answer; None for the task's predictions.
    """

    def __init__(
        self,
        model: str,
        preprocess: Callable[[HookRequest], Any] | None,
        postprocess: Callable[[dict[str, NDArray[Any]]], Any] | None,
    ) -> None:
        self._model = model
        self._preprocess = preprocess
        self._postprocess = postprocess

    @property
    def takes_requests(self) -> bool:
        """Return whether bodies are for ``preprocess``."""
        return self._preprocess is not None

    @property
    def makes_answers(self) -> bool:
        """Return whether answers come from ``postprocess``."""
        return self._postprocess is not None

    def inputs(self, request: HookRequest, signature: Signature) -> Inputs:
        """Return the inputs for the body of a request.

        Raises:
            InputMismatchError: the hook refuses the request.
            HookFailedError: the hook fails, or does not return the model's inputs.
            DeadlineExceededError: the hook did not end in time.
        """
        assert self._preprocess is not None  # takes_requests
        preprocess = self._preprocess
        returned = self._call("preprocess", lambda: preprocess(request))
        if not isinstance(returned, Mapping):
            raise self._wrong("preprocess", f"found {type(returned).__name__}, expected a dict of arrays by input name")
        inputs: Inputs = {}
        for name, value in returned.items():
            port = signature.find_input(name) if isinstance(name, str) else None
            if port is None:
                expected = quoted(signature.input_names)
                raise self._wrong("preprocess", f"input {brief(name)}: not found in the model, expected {expected}")
            dtype = None if port.spec is None else port.spec.dtype
            inputs[port.name] = self._array(f"input '{port.name}'", value, dtype, describe(port))
        if missing := [name for name in signature.input_names if name not in inputs]:
            raise self._wrong("preprocess", f"found no array for {quoted(missing)}, expected all inputs")
        return inputs

    def answer(self, outputs: Mapping[str, NDArray[Any]]) -> Any:
        """Return the answer made of outputs, as plain data that JSON can represent.

        Raises:
            InputMismatchError: the hook refuses the request.
            HookFailedError: the hook fails, or returns what JSON cannot represent.
            DeadlineExceededError: the hook did not end in time.
        """
        assert self._postprocess is not None  # makes_answers
        postprocess = self._postprocess
        returned = self._call("postprocess", lambda: postprocess(dict(outputs)))
        try:
            text = orjson.dumps(returned, option=orjson.OPT_SERIALIZE_NUMPY)
        except orjson.JSONEncodeError as exc:
            raise self._wrong("postprocess", f"the answer cannot be written as JSON: {exc}") from None
        charge(len(text))
        return orjson.loads(text)

    def _call(self, function: str, work: Callable[[], T]) -> T:
        try:
            return WATCHDOG.call(work)
        except RefusedByHook as refusal:
            raise InputMismatchError(safe_text(str(refusal)) or f"{HOOKS} refused the request") from None
        except ServiceError:  # of the request's own methods, or the deadline
            raise
        except BaseException as exc:  # hooks may raise anything, also SystemExit
            log.exception("model '%s': %s: %s failed", self._model, HOOKS, function)
            raise HookFailedError(
                f"{HOOKS}: {function} raised {type(exc).__name__}; the server's log says more"
            ) from exc

    def _array(self, where: str, value: Any, dtype: np.dtype[Any] | None, expected: str) -> NDArray[Any]:
        """Return a value as an array of the input's dtype, converted unless numbers of another kind would be lost."""
        try:
            array = np.asarray(value)
        except ValueError:  # nested lists of different lengths
            array = np.empty(0, object)
        is_number = array.dtype.kind in _NUMBERS
        if dtype is not None and (is_number or is_text(dtype)) and np.can_cast(array.dtype, dtype, "same_kind"):
            array = array.astype(dtype, copy=False)
        if array.dtype.kind == "O" or (dtype is not None and array.dtype != dtype):
            found = type(value).__name__ if array.dtype.kind == "O" else dtype_name(array.dtype)
            raise self._wrong("preprocess", f"{where}: found {found}, expected {expected}")
        return array

    def _wrong(self, function: str, problem: str) -> HookFailedError:
        log.error("model '%s': %s: %s: %s", self._model, HOOKS, function, problem)
        return HookFailedError(f"{HOOKS}: {function}: {problem}")
