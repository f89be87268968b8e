"""How the threads of a team agree on who does what: which words they share, and what each does to them.

Every thread walks the same list of steps. The chunks of a step fall into as many shares as there are threads: of
consecutive chunks, or, of steps that say so, dealt out one by one. A thread takes the chunks of its own share first, so
that from step to step it works on the same rows, which its own caches hold; then it helps with the others' shares. A
thread that the system does not let run takes nothing, and the others do not wait for it unless it holds a chunk. Every
share has a counter of the chunks taken. One more of the step says how many have ended: a thread adds its own once it
finds no more, and goes on when all have ended. Waiting is a brief spin, then sleep on a futex.

The counters carry the number of the run (the epoch) in their upper bits. A counter of an earlier run counts as zero,
so nothing is cleared between runs, and a thread that comes late from an earlier run sees a later epoch and leaves.
That holds only while the steps of a generation are those the leader walked: a late thread may look up the bounds of its
segment after the run has ended. So the tables of steps and segments are never written once threads know them
(docs/decisions/001-answers-that-were-not-their-requests.md).

The leader is the caller's thread; the others, the workers, are parked for life and never take Python's lock.

Sleep loses no call, because who is about to sleep says so *before* it looks for the last time, and who changes what is
waited for changes it *before* it asks whether anybody sleeps: one of the two sees the other. That takes seq_cst of all
four accesses. The futex itself compares, and sleeps only where the word is still what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Bytes: a step is its function, its arguments, its number of chunks, the place of the first of them in a trace, and
# whether they are dealt out one by one; its counters lie on lines of their own, those of its shares one after the
# other, then the one of chunks that have ended. A chunk's place in a trace is its thread, and the clock before and
# after it.
STEP_BYTES: Final = 40
LINE_BYTES: Final = 64
TEAM_BYTES: Final = 512
TRACE_BYTES: Final = 24
# Words of the team's block that nobody writes while threads run, as byte offsets.
STEPS, COUNTERS, SEGMENTS, SPIN, TRACE, SHARES = 256, 264, 272, 280, 288, 296

# A generation is an epoch and the number of a segment; the last segment number asks workers to leave.
SEGMENT_BITS: Final = 24
STOP: Final = (1 << SEGMENT_BITS) - 1


def counter_bytes(shares: int) -> int:
    """Bytes of a step's counters."""
    return LINE_BYTES * (shares + 1)


@dataclass(frozen=True, slots=True)
class Word:
    """A word that threads share: its byte offset in the team's block or on its line of counters, and its LLVM type."""

    offset: int
    type: str


GENERATION: Final = Word(0, "i64")  # the run that is asked for
IDLE: Final = Word(64, "i32")  # workers asleep on GENERATION
SLEEPERS: Final = Word(128, "i32")  # threads asleep on WAKE
WAKE: Final = Word(192, "i32")  # counts the calls to those
TAKEN: Final = Word(0, "i64")  # of a share: the epoch, and how many chunks were taken
ENDED: Final = Word(0, "i64")  # of a step: the epoch, and how many chunks have ended


@dataclass(frozen=True, slots=True)
class Access:
    """What is done to a word: LLVM's instruction and ordering. ``swap`` is a compare-and-swap, tried until it holds."""

    by: str
    word: Word
    operation: str
    ordering: str
    then: str


PROTOCOL: Final[dict[str, Access]] = {
    # Between runs.
    "publish": Access("leader", GENERATION, "store", "seq_cst", "find idle. Of STOP, by anybody: wake all"),
    "find idle": Access("leader", IDLE, "load", "seq_cst", "some: wake all that sleep on GENERATION. Walk the steps"),
    "listen": Access("worker", GENERATION, "load", "acquire", "another: walk its steps, or leave at STOP. Else spin"),
    "go idle": Access("worker", IDLE, "add", "seq_cst", "after the spin: listen again"),
    "listen again": Access("worker", GENERATION, "load", "seq_cst", "the same: sleep while GENERATION is. Then rise"),
    "rise": Access("worker", IDLE, "sub", "seq_cst", "listen"),
    # In a step.
    "look": Access("all", TAKEN, "load", "monotonic", "a later epoch: leave. All taken: the next, or count. Else take"),
    "take": Access("all", TAKEN, "swap", "acq_rel", "held: compute the chunk. Look"),
    "count": Access("all", ENDED, "load", "monotonic", "end, where it has computed any; else wait"),
    "end": Access("all", ENDED, "swap", "seq_cst", "held: wait, or find sleepers if all have ended. Else count"),
    "find sleepers": Access("all", SLEEPERS, "load", "seq_cst", "some: call. Wait"),
    "call": Access("all", WAKE, "add", "seq_cst", "wake all that sleep on WAKE. Wait"),
    # At the end of a step.
    "wait": Access("all", ENDED, "load", "acquire", "all ended, or a later epoch: the next step. Else spin"),
    "lie down": Access("all", SLEEPERS, "add", "seq_cst", "after the spin: draw"),
    "draw": Access("all", WAKE, "load", "seq_cst", "a ticket; wait again"),
    "wait again": Access("all", ENDED, "load", "seq_cst", "not all: sleep while WAKE is the ticket. Then get up"),
    "get up": Access("all", SLEEPERS, "sub", "seq_cst", "wait"),
}  # fmt: skip
