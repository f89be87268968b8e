"""A million characters in many scripts: tokens and their places are those of the library, to the id."""

from __future__ import annotations

import random
import unicodedata

import pytest

from app.text.text import Text
from app.text.tokenizer import Tokenizer
from tests.app.text_models import DATA

tokenizers = pytest.importorskip("tokenizers", reason="needs the extra text")
CHARACTERS = 1_000_000
LONGEST = 2**20
# First and last letters of blocks: Latin, Greek, Cyrillic, Armenian, Hebrew, Arabic, Devanagari, Tamil, Thai, Georgian,
# Hangul, Ethiopic, Cherokee, Khmer, Hiragana, Han, Egyptian hieroglyphs, mathematical letters, emoji.
BLOCKS = [
    (0x20, 0x24F), (0x370, 0x3FF), (0x400, 0x52F), (0x531, 0x587), (0x591, 0x5F4), (0x600, 0x6FF), (0x900, 0x97F),
    (0xB80, 0xBFF), (0xE01, 0xE5B), (0x10A0, 0x10FF), (0xAC00, 0xD7A3), (0x1200, 0x137F), (0x13A0, 0x13FF),
    (0x1780, 0x17FF), (0x3041, 0x309F), (0x4E00, 0x9FFF), (0x13000, 0x1342E), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF),
]  # fmt: skip


def make_texts() -> list[str]:
    """Return texts of words of all blocks, combining marks and spaces of several kinds among them."""
    chosen, texts, total = random.Random(0), list[str](), 0
    while total < CHARACTERS:
        words = []
        for _ in range(chosen.randint(1, 2000)):
            first, last = chosen.choice(BLOCKS)
            letters = [chr(chosen.randint(first, last)) for _ in range(chosen.randint(1, 9))]
            words.append("".join(letters) + chosen.choice(["", "", "", "\u0301", "\u200d", "."]))
        text = "".join(word + chosen.choice([" ", " ", "  ", "\t", "\n", "\u00a0", "\u3000"]) for word in words)
        texts.append(unicodedata.normalize(chosen.choice(["NFC", "NFD"]), text))
        total += len(texts[-1])
    return texts


TEXTS = make_texts()


def byte_level() -> str:
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(TEXTS[:20], vocab_size=600, show_progress=False)
    return str(made.to_str())


def unigram() -> str:
    made = tokenizers.SentencePieceUnigramTokenizer()
    made.train_from_iterator(TEXTS[:20], vocab_size=20_000, show_progress=False, unk_token="<unk>")
    return str(made.to_str())


@pytest.mark.parametrize("make", [lambda: (DATA / "tokenizer.json").read_text(), byte_level, unigram])
def test_tokens_and_places_are_those_of_the_library(make: object) -> None:
    text = make()  # type: ignore[operator]
    theirs = tokenizers.Tokenizer.from_str(text)
    theirs.no_truncation()
    theirs.no_padding()
    tokens = 0
    for given, found in zip(
        TEXTS, Tokenizer(text.encode(), LONGEST).encode([Text(each) for each in TEXTS]), strict=True
    ):
        expected = theirs.encode(given)
        assert found.ids == expected.ids
        assert found.offsets == expected.offsets
        assert found.words == expected.word_ids
        assert found.sequences == expected.sequence_ids
        tokens += len(found.ids)
    assert tokens > CHARACTERS / 10
