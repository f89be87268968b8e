"""Code of a recurrence whose weights exceed the caches of a core, so that threads share every step.

A step is split into groups of panels. Each thread claims one group after the other, beginning with those it computed in
the step before, whose weights may still be in its caches. A step begins when all groups of the one before are finished.
Only a running thread claims a group, and it computes it at once, so no thread waits for one that has not started.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.compiler.codegen.ir import Index, Value, as_value
from engine.compiler.kernels.recurrent.progress import LINE_WORDS, claim, count, next_ticket, wait_for
from engine.compiler.kernels.recurrent.writer import Writer

_WORD_BYTES = 8


def words_of(groups: int) -> int:
    """Return the number of shared words, a cache line each: finished groups, two claims, next step of each group."""
    return 3 + groups


@dataclass(frozen=True, slots=True)
class SharedWriter:
    """Writer of the groups of a step.

    Args:
        words: see words_of(); zero at first.
        home: the group that a thread claims first; a different one for each thread.
    """

    writer: Writer
    groups: int
    words: Value
    home: Index

    def emit(self) -> None:
        """Write the initial states, all steps and the final states."""
        f, steps = self.writer.f, self.writer.kernel.steps
        done, first, last, *_ = (self._word(k) for k in range(words_of(0)))
        with f.when(claim(f, first, 0)):
            self.writer.begin()
            next_ticket(f, done)
        near = f.reserve(1, _WORD_BYTES)
        f.store(as_value(self.home), near, _WORD_BYTES)
        # A late thread begins at the current step of the others.
        current, _ = f.divmod(f.maximum(f.sub(count(f, done), 1), 0), self.groups)
        with f.loop(current, steps) as step:
            wait_for(f, done, f.add(f.mul(step.index, self.groups), 1))
            self._step(step.index, near, done)
        with f.when(claim(f, last, 0)):
            wait_for(f, done, f.add(f.mul(steps, self.groups), 1))
            self.writer.end()
        f.finish()

    def _step(self, step: Index, near: Value, done: Value) -> None:
        """Write the loop over unclaimed groups: upward from home, or downward from the thread's previous group."""
        f = self.writer.f
        _, odd = f.divmod(step, 2)
        begin = f.select(f.less(0, odd), f.load("i64", near, _WORD_BYTES), as_value(self.home))
        forward = f.sub(1, f.mul(odd, 2))
        with f.loop(0, self.groups) as each:
            place = f.add(f.add(begin, self.groups), f.mul(each.index, forward))
            _, group = f.divmod(place, self.groups)
            word = self._word(f.add(group, words_of(0)))
            with f.when(f.compare("eq", count(f, word), as_value(step))), f.when(claim(f, word, step)):
                self._compute(step, group)
                f.store(as_value(group), near, _WORD_BYTES)
                next_ticket(f, done)

    def _compute(self, step: Index, group: Index) -> None:
        writer, f = self.writer, self.writer.f
        panels = len(writer.kernel.panels)
        begin, end = (f.divmod(f.mul(f.add(group, k), panels), self.groups)[0] for k in (0, 1))
        writer.step(step, writer.gates_of(step), panels=(begin, end), group=group)

    def _word(self, number: Index) -> Value:
        return self.writer.f.at(self.words, self.writer.f.mul(number, LINE_WORDS), _WORD_BYTES)
