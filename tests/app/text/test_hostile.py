"""Hostile texts and tokenizers are refused with a message, in bounded time and memory."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.errors import ConfigError, ServiceError
from app.text.text import Text
from app.text.tokenizer import MAX_CHARACTERS, Tokenizer, open_tokenizer
from tests.app.client import Client, serving
from tests.app.text_models import write_text_model

tokenizers = pytest.importorskip("tokenizers", reason="needs the extra text")
models, normalizers, splits = tokenizers.models, tokenizers.normalizers, tokenizers.pre_tokenizers
# CPU time that a text of the longest length, or a request that is refused, may take.
BOUND_S = 10


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = tmp_path_factory.mktemp("hostile")
    write_text_model(store, "embedding", "[text]\nmax_tokens = 64\n")
    with serving(store, max_body_bytes=64 * 2**20) as found:
        yield found


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (lambda: {"input": "a" * 2**24}, 413, "and texts in several requests"),
        (lambda: {"input": "a" * 200_001}, 413, "found 200,001 characters, expected at most 200,000"),
        (lambda: {"input": ["a"] * 100_000}, 413, "found 100,000 texts, expected at most 4,096"),
        (lambda: {"input": [[1] * 1_000_000]}, 413, "too many values"),
        (lambda: {"input": [[2**31]]}, 422, "found token id 2147483648"),
        (lambda: {"input": [[-1]]}, 422, "found token id -1"),
        (lambda: {"input": [[]]}, 400, "input: found []"),
        (lambda: {"input": ""}, 200, ""),
        (lambda: {"input": "\x00\u202e\ufeff\U0010ffff" * 1000}, 200, ""),
        (lambda: {"input": "e" + "\u0301" * 100_000}, 200, ""),
    ],
)
def test_hostile_texts_are_answered_in_bounded_time(
    client: Client, body: Callable[[], dict[str, Any]], status: int, message: str
) -> None:
    begin = time.process_time()
    answer = client.post("/v1/embeddings", json={"model": "embedding", **body()})
    assert answer.status_code == status, answer.text[:300]
    assert message in answer.text
    assert time.process_time() - begin < BOUND_S


@pytest.mark.parametrize("text", [b'"a\\ud800b"', b'"\\udc00"', b'["x", "\\ud83d"]'])
def test_lone_surrogates_are_refused(client: Client, text: bytes) -> None:
    answer = client.post("/v1/embeddings", content=b'{"model": "embedding", "input": ' + text + b"}")
    assert answer.status_code == 400
    assert "surrogate" in answer.text or "JSON" in answer.text


def content(model: Any, normaliser: Any = None, split: Any = None) -> bytes:
    """Return a tokenizer.json."""
    made = tokenizers.Tokenizer(model)
    if normaliser is not None:
        made.normalizer = normaliser
    if split is not None:
        made.pre_tokenizer = split
    return made.to_str().encode()


WORDS = {"[UNK]": 0, "a": 1, "##a": 2}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            content(models.WordPiece(WORDS, unk_token="[UNK]", max_input_chars_per_word=10**9)),
            "model.max_input_chars_per_word: found 1,000,000,000, expected at most 1,000",
        ),
        (
            content(models.WordLevel(WORDS, unk_token="[UNK]"), normalizers.Replace("a", "b" * 10**5)),
            "normalizer, characters for one: found 100,000, expected at most 100",
        ),
        (
            content(
                models.WordLevel(WORDS, unk_token="[UNK]"),
                normalizers.Sequence([normalizers.Replace("a", "a" * 11), normalizers.Replace("a", "a" * 11)]),
            ),
            "characters for one: found 121",
        ),
        (
            content(models.WordLevel(WORDS, unk_token="[UNK]"), normalizers.Prepend("b" * 10**6)),
            "normalizer, characters for one: found 1,000,000",
        ),
        (
            content(
                models.WordLevel(WORDS, unk_token="[UNK]"),
                split=splits.Sequence([splits.ByteLevel() for _ in range(9)]),
            ),
            "pre_tokenizer, characters for one: found 262,144",
        ),
        (
            content(models.BPE({"a": 0}, [], continuing_subword_prefix="#" * 10**6)),
            "model.continuing_subword_prefix, characters: found 1,000,000",
        ),
        (
            content(models.BPE({"a": 0}, [], end_of_word_suffix="#" * 10**6)),
            "model.end_of_word_suffix, characters: found 1,000,000",
        ),
        (
            content(models.Unigram([("<unk>", 0.0), ("a" * 10**5, -1.0)], unk_id=0)),
            "model.vocab, characters of a token: found 100,000, expected at most 256",
        ),
        (b"", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b'{"version": "1.0"}', "cannot be read"),
        (b"\xff" * 100, "cannot be read"),
        (json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}).encode(), "cannot be read"),
    ],
)
def test_tokenizers_whose_cost_has_no_bound_are_refused(found: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match="tokenizer.json") as error:
        Tokenizer(found, 64)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_of_500_megabytes_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with path.open("wb") as file:
        file.truncate(500 * 2**20)
    with pytest.raises(ConfigError, match=r"found 524,288,000 bytes, expected at most 67,108,864"):
        open_tokenizer(path, 64)


@pytest.mark.parametrize(
    "found",
    [
        content(models.BPE({"a": 0, "aa": 1, "aaaa": 2}, [("a", "a"), ("aa", "aa")])),
        content(models.Unigram([("<unk>", 0.0), ("a", -1.0), ("aa", -1.5)], unk_id=0)),
        content(models.Unigram([("<unk>", 0.0), *(("a" * length, -1.5) for length in range(1, 256))], unk_id=0)),
        content(models.WordPiece(WORDS, unk_token="[UNK]", max_input_chars_per_word=1000)),
        content(models.WordPiece(WORDS, unk_token="[UNK]"), split=splits.Split(tokenizers.Regex(""), "isolated")),
    ],
)
def test_the_longest_word_takes_bounded_time(found: bytes) -> None:
    begin = time.process_time()
    (encoding,) = Tokenizer(found, 64).encode([Text("a" * MAX_CHARACTERS)])
    assert 1 <= len(encoding.ids) <= 64
    assert time.process_time() - begin < BOUND_S


def test_a_regular_expression_that_explodes_ends() -> None:
    made = Tokenizer(
        content(models.WordLevel(WORDS, unk_token="[UNK]"), split=splits.Split(tokenizers.Regex("(a+)+b"), "isolated")),
        64,
    )
    begin = time.process_time()
    with pytest.raises(ServiceError, match="cannot be tokenised"):
        made.encode([Text("a" * 3000)])
    assert time.process_time() - begin < BOUND_S
