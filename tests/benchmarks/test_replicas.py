"""Comparison of two replicas: right answers and processor time."""

from __future__ import annotations

import os

import pytest

from benchmarks.replicas import cpu_s, message, rate
from tests.app.sockets import listening
from tests.docs.pages import ROOT
from tests.patience import PATIENCE_S


def test_right_answers_are_counted_and_others_end_it() -> None:
    # A machine that is slow just now must not be told to come again: what is counted here are right answers.
    with listening(ROOT / "model_store", threads=1, max_wait_s=PATIENCE_S) as front:
        before = cpu_s([os.getpid()])
        assert rate([front.port, front.port], message(), 0.2) > 0
        assert cpu_s([os.getpid()]) > before
        with pytest.raises(RuntimeError, match=r"answered \[404"):
            rate([front.port], message().replace(b"superres", b"superman"), 0.2)
