"""W3C Trace Context: a request of a trace says so, and everything that is logged of it names the trace.

https://www.w3.org/TR/trace-context/: version, trace, span of the sender, flags, in lower-case hexadecimal digits. A
later version may add fields behind these. A header that is not valid is as none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import getrandbits
from typing import Final, Self

_FIELDS: Final = rb"(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})"
_HEADER: Final = re.compile(rb"00-%b|(?!00|ff)[0-9a-f]{2}-%b(?:-.*)?" % (_FIELDS, _FIELDS))
_SAMPLED: Final = 1
_MAX_BYTES: Final = 512


@dataclass(slots=True)
class TraceContext:
    """A trace, and this server's part in it.

    Args:
        trace: its id, 32 digits.
        parent: the sender's span, 16 digits.
        span: of the answer, 16 digits.
        flags: whether the sender records the trace.
    """

    trace: str
    parent: str
    span: str
    flags: int

    @classmethod
    def of(cls, header: bytes) -> Self | None:
        """What a traceparent header says; None where it is not valid."""
        found = _HEADER.fullmatch(header) if len(header) <= _MAX_BYTES else None
        if found is None:
            return None
        trace, parent, flags = found.group(1, 2, 3) if found[1] else found.group(4, 5, 6)
        return cls(trace.decode(), parent.decode(), f"{getrandbits(64) or 1:016x}", int(flags, 16) & _SAMPLED)

    def header(self) -> bytes:
        """For the answer: the same trace, with a span of our own."""
        return f"00-{self.trace}-{self.span}-{self.flags:02x}".encode()
