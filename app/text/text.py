"""Texts of a request, and texts as tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

TOKENIZER: Final = "tokenizer.json"
# Most texts in a request.
MAX_TEXTS: Final = 4_096


class Text(NamedTuple):
    """Text of a request: a string, two strings (question and context, query and document), or token ids."""

    first: str | tuple[int, ...]
    second: str | None = None


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts of a request, as the value of an input."""

    items: tuple[Text, ...]


class Encoding(NamedTuple):
    """Text as tokens.

    Attributes:
        text: the text; empty for token ids.
        ids: token ids, special tokens included.
        type_ids: 0 for tokens of the first string, 1 for those of the second.
        offsets: for each token, its start and end in characters of its string.
        sequences: for each token, 0 or 1 for the string that it comes from, None for special tokens.
        words: for each token, the number of its word in its string, None for special tokens.
        is_truncated: whether tokens were left out because the text is too long.
    """

    text: Text
    ids: list[int]
    type_ids: list[int]
    offsets: list[tuple[int, int]]
    sequences: list[int | None]
    words: list[int | None]
    is_truncated: bool = False

    def covered(self, first: int, last: int) -> tuple[int, int, str]:
        """Return start, end and text of the characters from one token to another of the same string."""
        source = self.text[self.sequences[first] or 0]
        start, end = self.offsets[first][0], self.offsets[last][1]
        return start, end, source[start:end] if isinstance(source, str) else ""
