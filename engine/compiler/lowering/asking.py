"""What a rule asks a lowering, noted down: what the rule makes follows from the answers.

``noted`` marks the questions. Whatever else a rule looks at, operators, options, the host, is the same in all lowerings
of a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, cast

from engine.compiler.lowering.declining import NotLoweredError

P = ParamSpec("P")
R = TypeVar("R")

DECLINED: Final = object()
"""The answer to a question that was declined."""


@dataclass(frozen=True, slots=True)
class Question:
    """Something that a rule asks.

    Args:
        method: of a lowering.
    """

    method: Callable[..., object]
    arguments: tuple[Any, ...]
    named: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> object:
        """Tells it from others, as long as what it is about is there."""
        return self.method, *map(id, self.arguments), *self.named.items()

    def asked_of(self, lowering: object) -> object:
        """The answer; DECLINED where there is none."""
        try:
            return self.method(lowering, *self.arguments, **self.named)
        except NotLoweredError:
            return DECLINED


class Asked(Protocol):
    """What can be asked.

    Attributes:
        notes: what was asked, and what was answered; None where nobody wants to know.
    """

    notes: list[tuple[Question, object]] | None


S = TypeVar("S", bound=Asked)


def noted(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A question: it is noted, and those that it asks on the way are not."""

    @wraps(method)
    def ask(self: S, *args: P.args, **named: P.kwargs) -> R:
        notes = self.notes
        if notes is None:
            return method(self, *args, **named)
        answer: object = DECLINED
        self.notes = None
        try:
            answer = found = method(self, *args, **named)
            return found
        finally:
            self.notes = notes
            notes.append((Question(method, args, named), answer))

    return cast(Callable[Concatenate[S, P], R], ask)
