"""Tokens of a speech recogniser: the blank, and how tokens become words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from app.errors import ConfigError
from app.messages import cut

# Names of the blank in use, and tokens that are no text.
_BLANKS: Final = ("<blk>", "<blank>", "[blank]", "<b>", "<pad>", "[PAD]", "<ctc_blank>")
_SILENT: Final = frozenset(
    {*_BLANKS, "<s>", "</s>", "<unk>", "[UNK]", "<sos/eos>", "<eps>", "[CLS]", "[SEP]", "[MASK]"}
)
# Character with which SentencePiece begins a token that begins a word.
_BEGIN: Final = "\u2581"
_DELIMITERS: Final = ("|", " ")


class Token(NamedTuple):
    """Text of a class.

    Attributes:
        text: what it adds to a word; empty for a delimiter, or a token that is no text.
        begins: whether a word begins with it, or after it if it has no text.
    """

    text: str
    begins: bool


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by class, and the class of the blank."""

    tokens: tuple[Token, ...]
    blank: int

    def words(self, classes: Sequence[int]) -> list[tuple[str, int, int]]:
        """Return the words of a sequence of classes, each with the position of its first and after its last token."""
        found: list[tuple[str, int, int]] = []
        is_open = False
        for at, each in enumerate(classes):
            text, begins = self.tokens[each]
            if begins and not text:
                is_open = False
            elif text and (begins or not is_open):
                found.append((text, at, at + 1))
                is_open = True
            elif text:
                word, first, _ = found[-1]
                found[-1] = (word + text, first, at + 1)
        return found


def make_vocabulary(
    labels: Sequence[str] | None, classes: int, *, blank: int | str | None, delimiter: str | None
) -> Vocabulary:
    """Return the vocabulary of a model.

    Args:
        labels: text of each class; the blank may be left out at the end, as NeMo does.
        classes: of the model.
        blank: class or token; None for the token with a usual name, the class without a label, or else class 0.
        delimiter: token between words; None for ``|``, a space, or a token that begins with U+2581.

    Raises:
        ConfigError: the labels have another number, or a token is not among them.
    """
    if labels is None or classes - len(labels) not in (0, 1):
        raise ConfigError(
            f"labels: found {'none' if labels is None else len(labels)}, expected {classes}, one for each class of the"
            " model, or one fewer without the blank at the end"
        )
    found = _find_blank(labels, classes, blank)
    names = [*labels, ""][:classes]
    separator = delimiter if delimiter is not None else next((each for each in _DELIMITERS if each in names), None)
    if delimiter is not None and delimiter not in names:
        raise ConfigError(f"speech-to-text.delimiter: found '{cut(delimiter)}', expected one of the labels")
    return Vocabulary(tuple(_token(name, separator) for name in names), found)


def _find_blank(labels: Sequence[str], classes: int, blank: int | str | None) -> int:
    if isinstance(blank, str):
        if blank not in labels:
            raise ConfigError(f"speech-to-text.blank: found '{cut(blank)}', expected one of the labels")
        return labels.index(blank)
    if blank is not None:
        if blank >= classes:
            raise ConfigError(f"speech-to-text.blank: found {blank}, expected less than {classes}")
        return blank
    if classes > len(labels):
        return len(labels)
    return next((labels.index(name) for name in _BLANKS if name in labels), 0)


def _token(name: str, separator: str | None) -> Token:
    if name == separator or name in (_BEGIN, " "):
        return Token("", True)
    if not name or name in _SILENT:
        return Token("", False)
    return Token(name.removeprefix(_BEGIN), True) if name.startswith(_BEGIN) else Token(name, False)
