"""States of a connection, as a table of transitions.

A connection has one request at a time. Usually it goes round HEAD, BODY, RUN, SEND. An answer may begin (EARLY), and
end (DROP), before the body has ended; then the rest of the body is dropped.

    HEAD ──head──► BODY ──body_end──► RUN ──start──► SEND ──answer_end──► HEAD
      └──────────────bodiless──────────▲
                   BODY ──start──► EARLY ──body_end──► SEND
                                   EARLY ──answer_end──► DROP ──body_end──► HEAD
    RUN ──upgrade──► STREAM
    every state ──last──► LAST

Only `Connection` changes the state, by `State.after`; an event without a transition is a bug and raises KeyError.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class Event(Enum):
    """Event that changes the state of a connection."""

    HEAD = auto()  # a head is complete, and a body follows
    BODILESS = auto()  # a head is complete, and no body follows
    BODY_END = auto()
    START = auto()  # the first byte of the answer is written
    ANSWER_END = auto()
    UPGRADE = auto()  # the connection becomes a WebSocket
    LAST = auto()  # the last answer is written, or the connection is lost


class State(Enum):
    """State of a connection."""

    HEAD = auto()  # it receives the head of the next request, or nothing yet
    BODY = auto()  # it receives a body
    RUN = auto()  # the request is complete, and the answer is being made
    SEND = auto()  # a part of the answer is written
    EARLY = auto()  # a part of the answer is written, and the body is still to come
    DROP = auto()  # the answer is written, and the body is still to come
    STREAM = auto()  # a WebSocket: both sides send messages until one of them closes
    LAST = auto()  # nothing follows: further bytes are dropped, and the client has some time to receive the answer

    def after(self, event: Event) -> State:
        """Return the state that an event leads to."""
        return State.LAST if event is Event.LAST else TRANSITIONS[self, event]


TRANSITIONS: Final = {
    (State.HEAD, Event.HEAD): State.BODY,
    (State.HEAD, Event.BODILESS): State.RUN,
    (State.BODY, Event.BODY_END): State.RUN,
    (State.BODY, Event.START): State.EARLY,
    (State.RUN, Event.START): State.SEND,
    (State.RUN, Event.UPGRADE): State.STREAM,
    (State.SEND, Event.ANSWER_END): State.HEAD,
    (State.EARLY, Event.BODY_END): State.SEND,
    (State.EARLY, Event.ANSWER_END): State.DROP,
    (State.DROP, Event.BODY_END): State.HEAD,
}
