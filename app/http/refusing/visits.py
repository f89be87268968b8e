"""What is known of a request when it is turned away, or is not: whom it is for, what it is answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from app.models.keeping.version import Version
from app.tracing.told import id_of

V2: Final = "/v2/"
PRIORITY: Final = b"priority"


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What a path and its query name; a model only, for there are no others here."""

    method: str
    path: str
    model: str
    version: int | str | None
    is_named_by_path: bool = True

    @property
    def is_v2(self) -> bool:
        """Whether it is the other protocol's."""
        return self.path.startswith(V2)


@dataclass(frozen=True, slots=True)
class Visit:
    """A request to run a model, as its head says."""

    target: Target
    version: Version


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """An answer that ends a request, to be sent as it is.

    Args:
        is_last: whether the connection ends with it.
        repeats: what the same client's next request is recognised by; None where each is looked at.
    """

    text: bytes
    is_last: bool
    repeats: Repeats | None = None

    def once(self) -> TurnedAway:
        """The same, of a request by which no other one can be recognised."""
        return replace(self, repeats=None)


@dataclass(frozen=True, slots=True)
class Repeats:
    """A request as another one may be, byte for byte but for its body.

    Args:
        size: of head and body.
    """

    target: Target
    head: bytes
    size: int

    def are(self, data: bytes | bytearray, size: int) -> bool:
        """Whether so much of the data is such a request, and does not say that it comes before others."""
        if size != self.size or not data.startswith(self.head):
            return False
        return not self.target.is_v2 or data.find(PRIORITY, len(self.head), size) < 0


class Closed:
    """What all requests to one target are answered for a moment, each with an id of its own.

    Args:
        until: when that is over.
        pieces: the answer before and behind its id.
        log: takes the id of each; None where nobody wants a line of each.

    Attributes:
        told: how many have been, and are not counted yet.
    """

    __slots__ = ("_behind", "_before", "_log", "status", "told", "until", "version")

    def __init__(
        self,
        until: float,
        version: Version,
        status: int,
        pieces: tuple[bytes, bytes],
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.until = until
        self.version = version
        self.status = status
        self.told = 0
        self._before, self._behind = pieces
        self._log = log

    def answer(self) -> bytes:
        """The next one."""
        number = id_of(b"")
        self.told += 1
        if self._log is not None:
            self._log(number)
        return b"%b%b%b" % (self._before, number.encode(), self._behind)
