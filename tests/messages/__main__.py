"""``python -m tests.messages`` writes the fixture anew. Read the difference before you commit it."""

from __future__ import annotations

from tests.messages.collect import FIXTURE, collect

if __name__ == "__main__":
    FIXTURE.write_text("".join(f"{text}\n" for text in collect()), "utf-8")
