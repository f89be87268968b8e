"""What ends a process, holds it up or fills its memory is a finding, and the next case is tried all the same."""

from __future__ import annotations

import ctypes

import pytest

from tests.fuzz.child import Child, Limits

LIMITS = Limits(address_bytes=2 << 30, case_bytes=32 << 20, cpu_s=0.1, wall_s=60)


def attempt(case: str) -> str:
    """The front end of these tests: does what the case says."""
    if case == "read what is not there":
        ctypes.string_at(0)
    if case == "never end":
        while True:
            pass
    if case == "take a while":
        return str(sum(range(8_000_000)))
    if case == "take memory":
        return str(len(bytearray(b"x") * (64 << 20)))
    if case == "take more than there is":
        bytearray(4 << 30)
    return "nothing"


@pytest.mark.parametrize(
    ("case", "outcome"),
    [
        ("read what is not there", "died: SIGSEGV"),
        ("never end", "died: SIGXCPU"),
        ("take a while", "too slow: 31999996000000"),
        ("take memory", "too much memory: 67108864"),
        ("take more than there is", "MemoryError"),
    ],
)
def test_what_a_case_must_not_do_is_found_and_the_next_is_tried(case: str, outcome: str) -> None:
    with Child("tests.fuzz.test_child:attempt", LIMITS) as child:
        found, after = child.attempt(case), child.attempt("nothing")
    assert (found.outcome, found.is_finding) == (outcome, True)
    assert (after.outcome, after.is_finding) == ("nothing", False)


def test_a_child_that_does_not_answer_is_ended() -> None:
    with Child("time:sleep", Limits(wall_s=0.5)) as child:
        assert child.attempt(60).outcome == "no answer"
