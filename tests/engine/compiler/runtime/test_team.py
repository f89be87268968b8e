"""The team's protocol: the code itself, run by two and three threads in every order there is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from engine.compiler.codegen.host import describe
from engine.compiler.runtime import protocol
from engine.compiler.runtime.protocol import PROTOCOL, SEGMENT_BITS, STOP
from engine.compiler.runtime.team import team_code
from tests.engine.compiler.runtime.interleavings import Machine, State, comes_to_an_end, explore, parse

TEAM: Final = 1 << 20
STEPS, COUNTERS, SEGMENTS, KERNELS, DISMISSED = (TEAM + (n << 12) for n in range(1, 6))
# What the leader tells: that a run of a segment begins, that it has ended, that there is nothing to do.
BEGUN, ENDED, REST = 100, 200, 300
RESTING: Final = -1
# Chunks of every step; of every segment its first step, and the one after its last.
CHUNKS: Final = (2, 1)
RANGES: Final = ((0, 2), (1, 2), (0, 1))


class BrokenError(AssertionError):
    """The protocol allowed what it must not."""


def observe(ledger: Any, event: str, facts: tuple[int, ...]) -> Any:
    """Chunks (step, number) of the leader's run that began and that ended; what must hold of them."""
    segment, begun, ended = ledger
    if event == "tell":
        kind, number = divmod(facts[0], 100)
        if kind == BEGUN // 100:
            return number, frozenset(), frozenset()
        if missing := chunks_of(segment) - ended:
            raise BrokenError(f"a run ended without {missing}")
        return (RESTING, begun, ended) if kind == REST // 100 else ledger
    step, chunk = kernel = (facts[0] - KERNELS, facts[1])
    if event == "end":
        return segment, begun, ended | {kernel}
    if kernel in begun:
        raise BrokenError(f"chunk {chunk} of step {step} twice")
    if waited := {each for each in chunks_of(segment) if each[0] < step} - ended:
        raise BrokenError(f"step {step} began before {waited} ended")
    return segment, begun | {kernel}, ended


def chunks_of(segment: int) -> frozenset[tuple[int, int]]:
    return frozenset((step, chunk) for step in range(*RANGES[segment]) for chunk in range(CHUNKS[step]))


def script(segments: tuple[int, ...], *, may_be_dismissed: bool = False) -> str:
    """Return the leader, and the thread that dismisses the workers, as an instance and the worker pool act."""
    stop = f"  call i64 @stop(ptr {TEAM}, i64 {STOP}, ptr null)"
    dismissed = f"load atomic i64, ptr {DISMISSED} seq_cst, align 8"
    lines = []
    for epoch, segment in enumerate(segments, 1):
        generation = epoch << SEGMENT_BITS | segment
        lines += [
            f"  call void @tell(i64 {BEGUN + segment})",
            f"  call i64 @run(ptr {TEAM}, i64 {generation}, ptr null, ptr null)",
            f"  call void @tell(i64 {ENDED})",
        ]
        if may_be_dismissed:  # the word to leave may have come before the run's own
            lines += [f"  %gone{epoch} = {dismissed}", f"  br i1 %gone{epoch}, label %out, label %next{epoch}"]
            lines += [f"next{epoch}:"]
    lines += [f"  call void @tell(i64 {REST})", "  br label %out", "out:", stop, "  ret void"]
    dismiss = ["entry:", f"  store atomic i64 1, ptr {DISMISSED} seq_cst, align 8", stop, "  ret void"]
    functions = {"leader": ["entry:", *lines], "dismisser": dismiss}
    return "\n".join("\n".join([f"define void @{name}() {{", *body, "}"]) for name, body in functions.items())


def machine_of(
    code: str,
    shares: int,
    segments: tuple[int, ...],
    *,
    spin: int = 0,
    is_dealt: bool = False,
    is_dismissed: bool = False,
    may_wake: bool = False,
) -> Machine:
    constants = {
        TEAM + protocol.SHARES: shares,
        TEAM + protocol.STEPS: STEPS,
        TEAM + protocol.COUNTERS: COUNTERS,
        TEAM + protocol.SEGMENTS: SEGMENTS,
        TEAM + protocol.SPIN: spin,
        TEAM + protocol.TRACE: 0,
    }
    for step, chunks in enumerate(CHUNKS):
        record = STEPS + step * protocol.STEP_BYTES
        constants |= {record: KERNELS + step, record + 8: 0, record + 16: chunks, record + 32: is_dealt}
    for number, bounds in enumerate(RANGES):
        constants |= {SEGMENTS + 16 * number + 8 * end: bound for end, bound in enumerate(bounds)}
    team = (protocol.GENERATION, protocol.IDLE, protocol.WAITERS, protocol.TICKET)
    shared = [DISMISSED, *(TEAM + word.offset for word in team)]
    for step in range(len(CHUNKS)):
        counters = range(0, protocol.counter_bytes(shares), protocol.LINE_BYTES)
        at = COUNTERS + step * protocol.counter_bytes(shares)
        words = [protocol.TAKEN] * shares + [protocol.ENDED]
        shared += [at + line + word.offset for line, word in zip(counters, words, strict=True)]
    functions = parse(code + script(segments, may_be_dismissed=is_dismissed))
    return Machine(functions, constants, tuple(shared), observe, may_wake)


def first_state(machine: Machine, workers: int, *, is_dismissed: bool = False) -> State:
    threads = [("leader", "leader")] + [("worker", "worker", TEAM, 0, 1)] * workers
    threads += [("dismisser", "dismisser")] * is_dismissed
    return machine.start(threads, (0, frozenset(), frozenset()))


def check(code: str, workers: int, segments: tuple[int, ...], **how: Any) -> Machine:
    """Explore everything, and hold it against what the protocol promises."""
    machine = machine_of(code, workers + 1, segments, **how)
    states, edges = explore(machine, first_state(machine, workers, is_dismissed=how.get("is_dismissed", False)))
    generation = machine.shared.index(TEAM + protocol.GENERATION.offset)
    for state, following in zip(states, edges, strict=True):
        if not following and any(thread.frames for thread in machine.threads(state)):
            raise BrokenError("a thread sleeps, and no thread is left to wake it")
        is_resting = state.ledger[0] == RESTING and state.memory[generation] & STOP != STOP
        if is_resting and {name for name, _ in following} <= {"leader", "dismisser", "spurious wake-up"}:
            words = {thread.asleep for thread in machine.threads(state) if thread.name == "worker"}
            if words != {TEAM + protocol.GENERATION.offset}:
                raise BrokenError("a worker that has nothing to do does not sleep until the next run")
    if not comes_to_an_end(edges):
        raise BrokenError("threads go on for ever")
    return machine


def code() -> str:
    return team_code(describe("avx2"))


TWO_AND_THREE = [
    (1, (0, 1, 2), {"spin": 1}),
    (1, (2, 2), {"is_dismissed": True}),
    (1, (0, 1), {"may_wake": True}),
    (1, (0, 1), {"is_dealt": True}),
    pytest.param(2, (0,), {}, marks=pytest.mark.slow),
    (2, (2, 2), {}),
]


@pytest.mark.parametrize(("workers", "segments", "how"), TWO_AND_THREE, ids=str)
def test_in_every_order_all_chunks_are_computed_once_step_by_step_and_no_thread_sleeps_for_ever(
    workers: int, segments: tuple[int, ...], how: dict[str, Any]
) -> None:
    machine = check(code(), workers, segments, **how)
    left = {
        (name, at)
        for name in ("walk", "run", "worker", "stop")
        for at, line in enumerate(machine.functions[name].lines)
        if line.is_seen and (name, at) not in machine.reached
    }
    assert not left


def checks_before_registering(text: str) -> str:
    """Register a waiter after its last check of the word."""
    return re.sub(r"(  %\w+ = atomicrmw add .*\n)(  %\w+ = load .*\n)(  %\w+ = load .*\n)", r"\2\3\1", text)


def never_waits(text: str) -> str:
    """Let a thread go on to the next step while chunks of this one are computed."""
    return re.sub(r"(acquire, align 8\n  %\w+ = icmp uge i64) %\w+, (%\w+)", r"\1 \2, \2", text)


def never_is_late(text: str) -> str:
    """Let a thread of an earlier run miss that this is a later one."""
    return re.sub(r"icmp ugt i64 %\w+, (%\w+)", r"icmp ugt i64 \1, \1", text)


def stops_without_waking(text: str) -> str:
    """Wake no thread to leave."""
    return re.sub(r"(@stop.*\n.*\n.*\n)  call void @wake_all.*\n", r"\1", text)


@pytest.mark.parametrize(
    ("spoil", "workers", "segments", "message"),
    [
        (checks_before_registering, 1, (2,), "no thread is left to wake it|until the next run"),
        (never_waits, 1, (0,), "began before"),
        (never_is_late, 1, (2, 2), "twice"),
        (stops_without_waking, 1, (2,), "no thread is left to wake it"),
    ],
)
def test_the_exploration_finds_what_spoilt_code_does(
    spoil: Callable[[str], str], workers: int, segments: tuple[int, ...], message: str
) -> None:
    assert spoil(code()) != code()
    with pytest.raises(BrokenError, match=message):
        check(spoil(code()), workers, segments)


@pytest.mark.parametrize("rows", [("bump ticket",), ("register waiter", "unregister waiter")], ids=", ".join)
def test_nothing_in_the_table_can_be_left_out(rows: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for row in rows:
        monkeypatch.setitem(PROTOCOL, row, replace(PROTOCOL[row], operation="load"))
    with pytest.raises(BrokenError, match="no thread is left to wake it|until the next run"):
        check(code(), 1, (2,))


def test_the_code_does_what_the_table_says_and_nothing_else() -> None:
    forms = {
        "load": r"load atomic (i\d+), .* (\w+), align",
        "store": r"store atomic (i\d+) .* (\w+), align",
        "add": r"atomicrmw add ptr \S+ (i\d+) 1 (\w+),",
        "sub": r"atomicrmw sub ptr \S+ (i\d+) 1 (\w+),",
        "swap": r"cmpxchg ptr \S+ (i\d+) .* (\w+) monotonic,",
    }
    found = Counter((name, *each) for name, form in forms.items() for each in re.findall(form, code()))
    expected = Counter((each.operation, each.word.type, each.ordering) for each in PROTOCOL.values())
    assert found == expected + Counter([("store", "i64", "seq_cst")])  # a run is published, and so is the end


def test_waiters_and_the_threads_that_wake_them_agree_on_one_order() -> None:
    """The exploration assumes: of two that write a word each and read the other's, one sees the other."""
    for rows in (
        ("publish", "check idle workers", "register idle", "recheck generation"),
        ("add ended", "check waiters", "register waiter", "recheck ended"),
    ):
        assert {PROTOCOL[row].ordering for row in rows} == {"seq_cst"}
