"""Sequences: requests that continue each other, with the states of the model kept between them.

Only the event loop starts and ends turns; a model that is unloaded closes its sequences from any thread.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from numpy.typing import NDArray
from pydantic import Field

from app.errors import DeadlineExceededError, SequenceNotFoundError, TooManySequencesError
from app.memory.reservation import MemoryBudget, Reservation
from app.messages import cut
from app.schema import Section

States: TypeAlias = Mapping[str, NDArray[Any]]
# What a sequence takes beside its states.
_OVERHEAD_BYTES: Final = 2048


class SequencesConfig(Section):
    """Limits of the sequences of a model with states."""

    max_active: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1000, description="Most sequences at once; more are refused with status 429."
    )
    idle_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = Field(
        default=60.0, description="Seconds after which a sequence without requests ends."
    )


class SequenceStep(NamedTuple):
    """Place of a request in a sequence.

    Attributes:
        client: identifies the client's API key; empty without keys. Clients with different keys share no sequence.
        id: number or text chosen by the client.
        is_start: whether it begins a new sequence.
        is_end: whether it is the last request.
    """

    client: bytes
    id: int | str
    is_start: bool
    is_end: bool

    @property
    def key(self) -> tuple[bytes, int | str]:
        """Return the key of the sequence."""
        return self.client, self.id


class Turn:
    """Run of one request of a sequence.

    Attributes:
        states: states before the run by name of the input, None in the first request; after the run, those after it.
            The sequence takes them when the request has succeeded.
    """

    __slots__ = ("states",)

    def __init__(self, states: States | None) -> None:
        self.states = states


class ActiveSequence:
    """Sequence in progress; one request at a time has its turn.

    Attributes:
        states: states after the last request, by name of the input; None before the first.
        lock: held by the request that runs; others wait in the order of arrival.
        requests: number of requests that run or wait.
        used_s: time of the last request's end.
    """

    __slots__ = ("states", "lock", "requests", "used_s", "_reservation")

    def __init__(self, reservation: Reservation) -> None:
        self.states: States | None = None
        self.lock = asyncio.Lock()
        self.requests = 0
        self.used_s = time.monotonic()
        self._reservation: Reservation | None = reservation

    def close(self) -> None:
        """Release the memory of the states."""
        reservation, self._reservation = self._reservation, None
        if reservation is not None:
            reservation.close()


class Sequences:
    """Sequences of one version of a model.

    Args:
        config: limits.
        state_bytes: memory of the states of one sequence.
    """

    def __init__(self, config: SequencesConfig, state_bytes: int) -> None:
        self.config = config
        self._state_bytes = state_bytes + _OVERHEAD_BYTES
        # Least recently used first.
        self._active: OrderedDict[tuple[bytes, int | str], ActiveSequence] = OrderedDict()
        self._lock = threading.Lock()
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def active(self) -> int:
        """Return the number of sequences in progress."""
        return len(self._active)

    @asynccontextmanager
    async def turn(self, step: SequenceStep, memory: MemoryBudget, deadline: float) -> AsyncIterator[Turn]:
        """Wait until earlier requests of the sequence have ended; then run the request as the body of this context.

        A first request that fails starts no sequence. Another that fails leaves the states as they were, also if it is
        the last: clients may repeat it.

        Args:
            step: place of the request in the sequence.
            memory: budget that the states are charged to.
            deadline: of the request, on time.monotonic()'s clock.

        Raises:
            SequenceNotFoundError: the request does not start a sequence, and there is none of its id.
            TooManySequencesError, QueueFullError: no further sequence may start now.
            DeadlineExceededError: earlier requests did not end in time.
        """
        sequence = self._start(step, memory) if step.is_start else self._find(step)
        sequence.requests += 1
        is_kept = not step.is_start
        try:
            await _wait(sequence.lock, deadline)
            try:
                if not step.is_start and self._active.get(step.key) is not sequence:
                    raise self._not_found(step)  # an earlier request has ended it
                turn = Turn(sequence.states)
                yield turn
                sequence.states, is_kept = turn.states, not step.is_end
            finally:
                sequence.lock.release()
        finally:
            sequence.requests -= 1
            self._end_turn(step, sequence, is_kept=is_kept)

    def turn_now(self, step: SequenceStep) -> Turn | None:
        """Return the turn of a request that continues a sequence and need not wait, or None.

        The caller runs it before it returns to the event loop, and calls ``end_now`` if it succeeds.
        """
        self._evict_idle()
        sequence = None if step.is_start else self._active.get(step.key)
        return None if sequence is None or sequence.requests else Turn(sequence.states)

    def end_now(self, step: SequenceStep, turn: Turn) -> None:
        """End a turn of ``turn_now``."""
        sequence = self._active.get(step.key)
        if sequence is not None:  # no other thread has closed it
            sequence.states = turn.states
            self._end_turn(step, sequence, is_kept=not step.is_end)

    def end(self, key: tuple[bytes, int | str]) -> None:
        """End a sequence if it is in progress."""
        with self._lock:
            sequence = self._active.pop(key, None)
        if sequence is not None:
            sequence.close()

    def close(self) -> None:
        """End all sequences; later requests find none."""
        with self._lock:
            self._is_closed = True
            ended = list(self._active.values())
            self._active.clear()
        for sequence in ended:
            sequence.close()

    def _start(self, step: SequenceStep, memory: MemoryBudget) -> ActiveSequence:
        self._evict_idle()
        is_new = step.key not in self._active
        if is_new and len(self._active) >= self.config.max_active:
            raise TooManySequencesError(
                f"sequence '{cut(str(step.id))}': found {len(self._active)} active sequences of the model, expected at"
                f" most {self.config.max_active} (sequences.max_active)",
                retry_after_s=max(1, math.ceil(self._next_end_s())),
                limit=self.config.max_active,
            )
        reservation = memory.open()
        try:
            reservation.charge(self._state_bytes)
        except BaseException:
            reservation.close()
            raise
        sequence = ActiveSequence(reservation)
        with self._lock:
            is_closed = self._is_closed
            replaced = None if is_closed else self._active.pop(step.key, None)
            if not is_closed:
                self._active[step.key] = sequence
        if is_closed:  # the request is the last of a model that is being unloaded
            sequence.close()
        if replaced is not None:
            replaced.close()
        self._watch()
        return sequence

    def _find(self, step: SequenceStep) -> ActiveSequence:
        self._evict_idle()
        sequence = self._active.get(step.key)
        if sequence is None:
            raise self._not_found(step)
        return sequence

    def _not_found(self, step: SequenceStep) -> SequenceNotFoundError:
        return SequenceNotFoundError(
            f"sequence '{cut(str(step.id))}': not found, expected sequence_start in its first request; sequences end"
            f" after {self.config.idle_timeout_s:g} s without requests, and when the model is loaded again"
        )

    def _end_turn(self, step: SequenceStep, sequence: ActiveSequence, *, is_kept: bool) -> None:
        """Note the end of a request; end the sequence if no more are to come."""
        sequence.used_s = time.monotonic()
        with self._lock:
            is_current = self._active.get(step.key) is sequence
            if is_current and is_kept:
                self._active.move_to_end(step.key)
            elif is_current:
                del self._active[step.key]
        if is_current and not is_kept:
            sequence.close()

    def _evict_idle(self) -> None:
        """End the sequences that had no request for too long."""
        ended = []
        latest_s = time.monotonic() - self.config.idle_timeout_s
        with self._lock:
            while self._active:
                key, sequence = next(iter(self._active.items()))
                if sequence.used_s > latest_s:
                    break
                if sequence.requests:
                    sequence.used_s = time.monotonic()
                    self._active.move_to_end(key)
                else:
                    ended.append(self._active.pop(key))
        for sequence in ended:
            sequence.close()

    def _next_end_s(self) -> float:
        """Return the seconds until a sequence may end for lack of requests."""
        oldest = next(iter(self._active.values()), None)
        return 0.0 if oldest is None else max(0.0, oldest.used_s + self.config.idle_timeout_s - time.monotonic())

    def _watch(self) -> None:
        """Evict idle sequences later, as long as there are any."""
        if self._timer is None and self._active:
            self._timer = asyncio.get_running_loop().call_later(self._next_end_s(), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._evict_idle()
        self._watch()


async def _wait(lock: asyncio.Lock, deadline: float) -> None:
    """Take the lock in the order of arrival.

    Raises:
        DeadlineExceededError: it was not free in time.
    """
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            await lock.acquire()
    except TimeoutError:
        raise DeadlineExceededError("earlier requests of the sequence did not end within the request's time") from None
