"""Stands in for uvicorn's request cycle where a request never reaches the ASGI app."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Self


class _Nothing:
    """A body that is dropped as it comes."""

    def __len__(self) -> int:
        return 0

    def __iadd__(self, _: bytes) -> Self:
        return self


_NOTHING: Final = _Nothing()


class NullCycle:
    """A cycle without an app behind it, with the attributes that uvicorn's protocol looks at.

    Attributes:
        task: what makes the answer, where that takes time.
    """

    __slots__ = (
        "body", "disconnected", "keep_alive", "more_body", "response_complete", "response_started", "task",
        "waiting_for_100_continue",
    )  # fmt: skip
    message_event = asyncio.Event()  # nobody waits for it

    def __init__(self, *, more_body: bool) -> None:
        self.body: Any = _NOTHING
        self.disconnected = self.response_complete = self.response_started = self.waiting_for_100_continue = False
        self.keep_alive, self.more_body = True, more_body
        self.task: asyncio.Task[None] | None = None

    def drop(self) -> None:
        """The client is gone: nobody waits for the answer."""
        self.disconnected = True
        if self.task is not None:
            self.task.cancel()
