"""Admission of engines to a contest."""

from __future__ import annotations

import numpy as np
import pytest

from app.measuring.contest import Contest, RivalError


def test_only_right_answers_enter_a_contest() -> None:
    contest = Contest([np.ones((1, 3), np.float32)], [np.ones(2)])
    contest.enter("right", lambda _: [np.ones(2)])
    with pytest.raises(RivalError):
        contest.enter("wrong", lambda _: [np.zeros(2)])
    assert list(contest.measure(1e-9, lambda *_: None)) == ["right"]
