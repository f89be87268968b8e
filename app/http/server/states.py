"""States of a connection, as tables of transitions.

A connection has one request at a time. Its two sides, receiving and answering, change independently. The answer may
come before the body has ended; the next request begins when both are complete.

    receiving   HEAD ──head──► BODY ──end──► DONE ──next──► HEAD       answering   IDLE ──head──► RUN ──start──► SEND
                  │             │              ▲                                    ▲                             │ end
                  │         answered           │                                    └────next──── DONE ◄──────────┘
                  │             ▼              │
                  │            DROP ────end────┤
                  └──────────bodiless──────────┘
    every state ──last──► IGNORE / LAST: the last answer is written, further bytes are dropped, and the client has some
    time to receive it.

Only `Connection` changes the states, by `Receiving.after` and `Answering.after`; an event without a transition is a
bug and raises KeyError.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class Event(Enum):
    """Event that changes the state of a connection."""

    HEAD = auto()  # a head is complete, and a body follows
    BODILESS = auto()  # a head is complete, and no body follows
    END = auto()  # receiving: the body is complete; answering: the answer is
    START = auto()  # the first byte of the answer is written
    ANSWERED = auto()  # the answer is complete, and the body is not
    NEXT = auto()  # both are complete
    LAST = auto()  # the last answer is written, or the connection is lost


class Receiving(Enum):
    """State of the side that receives from the client."""

    HEAD = auto()  # the head of the next request, or nothing yet
    BODY = auto()
    DROP = auto()  # a body whose request is answered
    DONE = auto()  # the request is complete; further bytes wait
    IGNORE = auto()  # further bytes are dropped

    def after(self, event: Event) -> Receiving:
        """Return the state that an event leads to."""
        return _RECEIVING[self][event]


class Answering(Enum):
    """State of the side that answers the client."""

    IDLE = auto()  # there is no request
    RUN = auto()  # the answer is being made
    SEND = auto()  # part of it is written
    DONE = auto()  # all of it is written, but the request's body is still to come
    LAST = auto()  # nothing follows

    def after(self, event: Event) -> Answering:
        """Return the state that an event leads to."""
        return _ANSWERING[self][event]


_RECEIVING: Final[dict[Receiving, dict[Event, Receiving]]] = {
    Receiving.HEAD: {Event.HEAD: Receiving.BODY, Event.BODILESS: Receiving.DONE, Event.LAST: Receiving.IGNORE},
    Receiving.BODY: {Event.END: Receiving.DONE, Event.ANSWERED: Receiving.DROP, Event.LAST: Receiving.IGNORE},
    Receiving.DROP: {Event.END: Receiving.DONE, Event.LAST: Receiving.IGNORE},
    Receiving.DONE: {Event.NEXT: Receiving.HEAD, Event.LAST: Receiving.IGNORE},
    Receiving.IGNORE: {Event.LAST: Receiving.IGNORE},
}
_ANSWERING: Final[dict[Answering, dict[Event, Answering]]] = {
    Answering.IDLE: {Event.HEAD: Answering.RUN, Event.BODILESS: Answering.RUN, Event.LAST: Answering.LAST},
    Answering.RUN: {Event.START: Answering.SEND, Event.LAST: Answering.LAST},
    Answering.SEND: {Event.END: Answering.DONE, Event.LAST: Answering.LAST},
    Answering.DONE: {Event.NEXT: Answering.IDLE, Event.LAST: Answering.LAST},
    Answering.LAST: {Event.LAST: Answering.LAST},
}
