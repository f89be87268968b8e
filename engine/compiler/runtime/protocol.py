"""Protocol of the threads of a run: which words they share, and what each thread does to them.

Every thread walks the same list of steps. The chunks of a step are divided into as many shares as there are threads:
consecutive chunks or, for steps that ask for it, chunks dealt out one by one. A thread takes the chunks of its own
share first, so that it works on the same rows from step to step, which its caches hold; then it takes chunks of other
shares. A descheduled thread delays the others only while it owns a chunk. Every share has a counter of the chunks
taken, and every step a counter of the chunks that have ended. A thread adds its own once it finds no more, and
continues when all have ended. It waits with a brief spin, then sleeps on a futex.

The upper bits of a counter hold the number of the run (the epoch). A counter of an earlier run counts as zero, so
nothing is cleared between runs. A thread that is late from an earlier run sees a later epoch and leaves. That requires
that the steps of a generation are those that the leader walked: a late thread may look up the bounds of its segment
after the run has ended. So before the tables of steps and segments are written again, for other sizes, all counters get
a later epoch, and then an empty run is published: its accesses in seq_cst order the marks before the tables
(docs/decisions/001-answers-that-were-not-their-requests.md).

The leader is the caller's thread. The workers are other threads, parked for life, and never take the GIL.

No wake-up is lost: a thread registers as a waiter *before* it checks the word for the last time, and the thread that
changes the word does so *before* it checks for waiters, so one of the two sees the other. That requires seq_cst for all
four accesses. The futex compares the word, and sleeps only while it is unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Bytes. A step: its function, its arguments, its number of chunks, the index of its first chunk in the trace, and
# whether chunks are dealt out one by one. Its counters are on cache lines of their own: one for each share, then
# the one of chunks that have ended. A chunk in the trace: its thread, and the clock before and after it.
STEP_BYTES: Final = 40
LINE_BYTES: Final = 64
TEAM_BYTES: Final = 512
TRACE_BYTES: Final = 24
# Words of the team's block that are not written while threads run, as byte offsets.
STEPS, COUNTERS, SEGMENTS, SPIN, TRACE, SHARES, POINTERS, POINTER_COUNT = 256, 264, 272, 280, 288, 296, 304, 312
# Words of a row of POINTERS: the address of an argument, the place of its array in the list of arrays, and an offset.
POINTER_WORDS: Final = 3

# A generation is an epoch and the number of a segment; the last segment number asks workers to leave.
SEGMENT_BITS: Final = 24
STOP: Final = (1 << SEGMENT_BITS) - 1


def counter_bytes(shares: int) -> int:
    """Return the bytes of a step's counters."""
    return LINE_BYTES * (shares + 1)


@dataclass(frozen=True, slots=True)
class Word:
    """Word that threads share: its byte offset in the team's block or on its line of counters, and its LLVM type."""

    offset: int
    type: str


GENERATION: Final = Word(0, "i64")  # the run that is requested
IDLE: Final = Word(64, "i32")  # workers that sleep on GENERATION
WAITERS: Final = Word(128, "i32")  # threads that sleep on TICKET
TICKET: Final = Word(192, "i32")  # increased to wake the waiters
TAKEN: Final = Word(0, "i64")  # of a share: the epoch, and the number of chunks taken
ENDED: Final = Word(0, "i64")  # of a step: the epoch, and the number of chunks that have ended


@dataclass(frozen=True, slots=True)
class Access:
    """Access to a word: LLVM's instruction and ordering. ``swap`` is a compare-and-swap, repeated until it succeeds."""

    by: str
    word: Word
    operation: str
    ordering: str
    then: str


PROTOCOL: Final[dict[str, Access]] = {
    # Between runs.
    "publish": Access("leader", GENERATION, "store", "seq_cst", "check idle workers. Of STOP, by any thread: wake all"),
    "check idle workers": Access("leader", IDLE, "load", "seq_cst", "some: wake them. Walk the steps"),
    "poll generation": Access("worker", GENERATION, "load", "acquire", "new: walk its steps, leave at STOP. Else spin"),
    "register idle": Access("worker", IDLE, "add", "seq_cst", "after the spin: recheck generation"),
    "recheck generation": Access("worker", GENERATION, "load", "seq_cst", "same: sleep on it. Then unregister idle"),
    "unregister idle": Access("worker", IDLE, "sub", "seq_cst", "poll generation"),
    # In a step.
    "read share": Access("all", TAKEN, "load", "monotonic", "later epoch: leave. All taken: next share, or read ended"),
    "claim chunk": Access("all", TAKEN, "swap", "acq_rel", "success: compute the chunk. Read share"),
    "read ended": Access("all", ENDED, "load", "monotonic", "computed any: add ended. Else poll ended"),
    "add ended": Access("all", ENDED, "swap", "seq_cst", "success: all ended: check waiters, else poll ended"),
    "check waiters": Access("all", WAITERS, "load", "seq_cst", "some: bump ticket. Poll ended"),
    "bump ticket": Access("all", TICKET, "add", "seq_cst", "wake all that sleep on TICKET. Poll ended"),
    # At the end of a step.
    "poll ended": Access("all", ENDED, "load", "acquire", "all ended, or a later epoch: next step. Else spin"),
    "register waiter": Access("all", WAITERS, "add", "seq_cst", "after the spin: read ticket"),
    "read ticket": Access("all", TICKET, "load", "seq_cst", "recheck ended"),
    "recheck ended": Access("all", ENDED, "load", "seq_cst", "not all: sleep on TICKET. Then unregister waiter"),
    "unregister waiter": Access("all", WAITERS, "sub", "seq_cst", "poll ended"),
}  # fmt: skip
