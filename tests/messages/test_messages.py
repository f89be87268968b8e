"""Messages that a user can see: ordinary English, ``where: found, expected[, what to do]``."""

from __future__ import annotations

from tests.messages.collect import FIXTURE, collect


def test_every_message_is_in_the_fixture() -> None:
    known, found = set(FIXTURE.read_text("utf-8").splitlines()), set(collect())
    changes = [f"new: {text}" for text in sorted(found - known)] + [f"gone: {text}" for text in sorted(known - found)]
    advice = "read these, then write the fixture anew with: python -m tests.messages"
    assert not changes, "\n".join([advice, *changes])
