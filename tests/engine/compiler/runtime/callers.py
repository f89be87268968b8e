"""Several threads that run one session at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

import engine
from engine.tensor import Array
from tests.patience import PATIENCE_S


def wrong_answers(session: engine.Session, inputs: Sequence[Array], wanted: Sequence[Array], times: int) -> list[int]:
    """Return the inputs whose first output was wrong, each run by a thread of its own, so many times."""
    wrong: list[int] = []

    def call(number: int) -> None:
        for _ in range(times):
            if not np.array_equal(session.run([inputs[number]])[0], wanted[number]):
                wrong.append(number)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(len(inputs))]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(PATIENCE_S)
        assert not caller.is_alive()
    return wrong
