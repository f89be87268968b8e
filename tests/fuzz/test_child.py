"""Cases that end a process, block it or fill its memory are findings, and the next case still runs."""

from __future__ import annotations

import ctypes
import time

import pytest

from tests.fuzz.child import Child, Limits

CPU_S = 0.2
QUICK = Limits(address_bytes=2 << 30, case_bytes=32 << 20, cpu_s=CPU_S, wall_s=60)
# What is not about time must not be judged by it, however slow the machine.
SMALL = Limits(address_bytes=2 << 30, case_bytes=32 << 20, cpu_s=20, wall_s=60)


def attempt(case: str) -> str:
    """The front end of these tests: does what the case says."""
    if case == "read what is not there":
        ctypes.string_at(0)
    if case == "never end":
        while True:
            pass
    if case == "take a while":
        end = time.process_time() + CPU_S
        while time.process_time() <= end:
            pass
        return "done"
    if case == "take memory":
        return str(len(bytearray(b"x") * (64 << 20)))
    if case == "take more than there is":
        bytearray(4 << 30)
    return "nothing"


@pytest.mark.parametrize(
    ("case", "limits", "outcome"),
    [
        ("read what is not there", SMALL, "died: SIGSEGV"),
        ("never end", QUICK, "died: SIGXCPU"),
        ("take a while", QUICK, "too slow: done"),
        ("take memory", SMALL, "too much memory: 67108864"),
        ("take more than there is", SMALL, "MemoryError"),
    ],
)
def test_what_a_case_must_not_do_is_found_and_the_next_is_tried(case: str, limits: Limits, outcome: str) -> None:
    with Child("tests.fuzz.test_child:attempt", limits) as child:
        found, after = child.attempt(case), child.attempt("nothing")
    assert (found.outcome, found.is_finding) == (outcome, True)
    assert (after.outcome, after.is_finding) == ("nothing", False)


def test_a_child_that_does_not_answer_is_ended() -> None:
    with Child("time:sleep", Limits(wall_s=0.5)) as child:
        assert child.attempt(60).outcome == "no answer"
