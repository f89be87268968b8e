"""Every message that a user can see is one that was read: ordinary English, ``where: found, expected[, what to do]``."""

from __future__ import annotations

from tests.messages.collect import FIXTURE, collect


def test_every_message_is_in_the_fixture() -> None:
    known, found = set(FIXTURE.read_text("utf-8").splitlines()), set(collect())
    changes = [f"new: {text}" for text in sorted(found - known)] + [f"gone: {text}" for text in sorted(known - found)]
    advice = "read these, then write the fixture anew with: python -m tests.messages"
    assert not changes, "\n".join([advice, *changes])


def test_messages_do_not_use_private_words() -> None:
    banned = ("is no ", "makes nothing of", "nobody", "somebody", "whoever", "who ", "no more", "in one go", " told")
    text = FIXTURE.read_text("utf-8").splitlines()
    assert not [line for line in text if any(word in line for word in banned)]
