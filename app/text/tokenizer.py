"""Tokenisation by Hugging Face's ``tokenizers``."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from app.errors import ConfigError, InputMismatchError, RequestTooLargeError
from app.memory.reservation import charge, check
from app.messages import safe_text
from app.text.text import TOKENIZER, Encoding, Text

# Vocabularies of 250,000 tokens take up to 20 MB.
_MAX_FILE_BYTES: Final = 64 * 2**20
# Most characters of a text: tokenising holds no lock, but cannot be interrupted, and takes up to a second for so many.
MAX_CHARACTERS: Final = 200_000
_DEFAULT_TOKENS: Final = 512
# Memory of one token in an encoding, and of one character while a text is tokenised.
_TOKEN_BYTES: Final = 300
_CHARACTER_BYTES: Final = 500
# Characters that are tokenised in one call.
_CHUNK: Final = 100_000
# Most characters of a word for WordPiece, which takes time by their square; longer ones are unknown. Usual: 100.
_MAX_WORD: Final = 1_000
# Most characters of a token of a Unigram model, which looks for all tokens at each character.
_MAX_PIECE: Final = 256
# Most characters that a normaliser or pre-tokeniser may write for one.
_MAX_GROWTH: Final = 100
# Bytes of one character, each of which ByteLevel writes as a character.
_MAX_BYTES: Final = 4


class Tokenizer:
    """Tokenizer of one model, for many threads at once.

    Args:
        content: text of ``tokenizer.json``.
        max_tokens: most tokens of a text; None for the number in the file, or 512.

    Raises:
        ConfigError: ``tokenizers`` is not installed, or cannot read the file.
    """

    def __init__(self, content: bytes, max_tokens: int | None) -> None:
        try:
            import tokenizers
        except ImportError:
            raise ConfigError(
                f"{TOKENIZER}: reading it needs the extra 'text': pip install 'pnnx-serve[text]'"
            ) from None
        # Its own threads would take cores that the settings give to runs.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_buffer(content)
        except BaseException as exc:  # a panic of the library is a BaseException
            if isinstance(exc, (KeyboardInterrupt, SystemExit)):
                raise
            raise ConfigError(f"{TOKENIZER}: cannot be read: {safe_text(str(exc), 300)}") from None
        self._check_costs()
        truncation, padding = self._tokenizer.truncation or {}, self._tokenizer.padding or {}
        self.max_tokens: int = max_tokens or int(truncation.get("max_length", _DEFAULT_TOKENS))
        self.pad_id = int(padding.get("pad_id", 0)) if padding else int(self._tokenizer.token_to_id("[PAD]") or 0)
        # Token ids are below.
        self.vocabulary = int(self._tokenizer.get_vocab_size(with_added_tokens=True))
        self._tokenizer.no_padding()
        special = self._tokenizer.num_special_tokens_to_add(is_pair=True)
        if self.max_tokens <= special:
            raise ConfigError(f"text.max_tokens: found {self.max_tokens}, expected more than {special} special tokens")
        self._tokenizer.enable_truncation(self.max_tokens)

    def _check_costs(self) -> None:
        """Raise unless time and memory are bounded by the length of a text; regular expressions have limits themselves.

        Raises:
            ConfigError: the message names the key.
        """
        model = self._tokenizer.model
        is_unigram = type(model).__name__ == "Unigram"
        longest = max(map(len, self._tokenizer.get_vocab(with_added_tokens=False)), default=0) if is_unigram else 0
        for key, found, limit in (
            ("model.max_input_chars_per_word", getattr(model, "max_input_chars_per_word", 0), _MAX_WORD),
            (
                "model.continuing_subword_prefix, characters",
                _characters(model, "continuing_subword_prefix"),
                _MAX_GROWTH,
            ),
            ("model.end_of_word_suffix, characters", _characters(model, "end_of_word_suffix"), _MAX_GROWTH),
            ("model.vocab, characters of a token", longest, _MAX_PIECE),
            ("normalizer, characters for one", _growth_of(self._tokenizer.normalizer), _MAX_GROWTH),
            ("pre_tokenizer, characters for one", _growth_of(self._tokenizer.pre_tokenizer), _MAX_GROWTH),
        ):
            if found > limit:
                raise ConfigError(f"{TOKENIZER}: {key}: found {found:,}, expected at most {limit:,}")

    def token(self, index: int) -> str:
        """Return the token of an id, or an empty string."""
        return str(self._tokenizer.id_to_token(index) or "")

    def encode(self, texts: Sequence[Text], *, special_tokens: bool = True) -> list[Encoding]:
        """Return the texts as tokens; long ones are truncated to ``max_tokens``.

        Raises:
            RequestTooLargeError: a text is too long to tokenise.
            InputMismatchError: a text has no tokens, or a token id is not in the vocabulary.
            ServiceError: there is not enough memory, or the request was cancelled.
        """
        found: list[Encoding] = []
        chunk: list[Text] = []
        size = 0
        for index, text in enumerate(texts):
            size += self._check(text, index, len(texts))
            chunk.append(text)
            if size > _CHUNK or index == len(texts) - 1:
                found += self._encode_chunk(chunk, special_tokens)
                chunk, size = [], 0
        for index, encoding in enumerate(found):
            if not encoding.ids:
                raise InputMismatchError(f"{_label(index, len(texts))}: found no token, expected at least one")
        return found

    def _check(self, text: Text, index: int, count: int) -> int:
        """Return the number of characters."""
        if isinstance(text.first, tuple):
            wrong = next((each for each in text.first if not 0 <= each < self.vocabulary), None)
            if wrong is not None:
                raise InputMismatchError(
                    f"{_label(index, count)}: found token id {wrong}, expected 0 to {self.vocabulary - 1}"
                )
            return len(text.first)
        length = len(text.first) + len(text.second or "")
        if length > MAX_CHARACTERS:
            raise RequestTooLargeError(
                f"{_label(index, count)} is too long: found {length:,} characters, expected at most {MAX_CHARACTERS:,}",
                found=length,
                limit=MAX_CHARACTERS,
            )
        return length

    def _encode_chunk(self, texts: Sequence[Text], special_tokens: bool) -> list[Encoding]:
        check()
        charge(_CHARACTER_BYTES * sum(len(text.first) + len(text.second or "") for text in texts))
        strings = [
            text.first if text.second is None else (text.first, text.second)
            for text in texts
            if isinstance(text.first, str)
        ]
        encoded = iter(self._encoded(strings, special_tokens))
        found = [
            self._ids(text, text.first) if isinstance(text.first, tuple) else _encoding(text, next(encoded))
            for text in texts
        ]
        charge(_TOKEN_BYTES * sum(len(encoding.ids) for encoding in found))
        return found

    def _encoded(self, strings: Sequence[Any], special_tokens: bool) -> list[Any]:
        try:
            return list(self._tokenizer.encode_batch(strings, add_special_tokens=special_tokens))
        except Exception as exc:
            if any(map(_has_surrogate, strings)):
                raise InputMismatchError("a text has half of a surrogate pair, expected Unicode text") from None
            raise InputMismatchError(f"a text cannot be tokenised: {safe_text(str(exc), 300)}") from None
        except BaseException as exc:
            if type(exc).__name__ != "PanicException":  # of the library's Rust code
                raise
            raise InputMismatchError("a text cannot be tokenised: the tokenizer failed") from None

    def _ids(self, text: Text, ids: tuple[int, ...]) -> Encoding:
        kept = list(ids[: self.max_tokens])
        none: list[int | None] = [None] * len(kept)
        return Encoding(text, kept, [0] * len(kept), [(0, 0)] * len(kept), none, none, len(kept) < len(ids))


def _characters(model: Any, name: str) -> int:
    return len(getattr(model, name, None) or "")


def _growth_of(step: Any) -> int:
    return 1 if step is None else _growth(orjson.loads(step.__getstate__()))


def _growth(step: Mapping[str, Any]) -> int:
    """Return the most characters that a normaliser or pre-tokeniser writes for one."""
    if step["type"] == "Sequence":
        return math.prod(map(_growth, step.get("normalizers") or step.get("pretokenizers") or ()))
    if step["type"] == "ByteLevel":
        return _MAX_BYTES
    return max(len(step.get({"Replace": "content", "Prepend": "prepend"}.get(step["type"], ""), "")), 1)


def _has_surrogate(text: str | tuple[str, str]) -> bool:
    try:
        "".join(text).encode()
    except UnicodeEncodeError:
        return True
    return False


def _label(index: int, count: int) -> str:
    return "the text" if count == 1 else f"text {index + 1}"


def _encoding(text: Text, encoded: Any) -> Encoding:
    return Encoding(
        text,
        encoded.ids,
        encoded.type_ids,
        encoded.offsets,
        encoded.sequence_ids,
        encoded.word_ids,
        bool(encoded.overflowing),
    )


def open_tokenizer(path: Path | None, max_tokens: int | None) -> Tokenizer | None:
    """Return the tokenizer of a file, or None if there is no such file.

    Raises:
        ConfigError: the file is too large or cannot be read.
    """
    if path is None or not path.exists():
        return None
    try:
        size = path.stat().st_size
        if size > _MAX_FILE_BYTES:
            raise ConfigError(f"{TOKENIZER}: found {size:,} bytes, expected at most {_MAX_FILE_BYTES:,}")
        return Tokenizer(path.read_bytes(), max_tokens)
    except OSError as exc:
        raise ConfigError(f"{TOKENIZER}: cannot be read: {exc.strerror}") from None
