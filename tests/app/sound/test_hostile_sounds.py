"""Damaged and lying files: refused or decoded, with bounded memory, and nothing but a ServiceError."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import pytest

from app.errors import RequestTooLargeError, ServiceError
from app.memory.reservation import MemoryBudget
from app.sound.decode import Decoder, format_of
from app.sound.sound import Sound
from tests.app.sound_models import encoded, tone, wav

pytest.importorskip("soundfile", reason="needs the extra audio")
pytest.importorskip("soxr", reason="needs the extra audio")
WAVE = tone(440, 0.3)
FORMATS: dict[str, dict[str, Any]] = {
    "WAV": {"format": "WAV"},
    "ADPCM": {"format": "WAV", "subtype": "MS_ADPCM"},
    "GSM": {"format": "WAV", "subtype": "GSM610"},
    "RF64": {"format": "RF64"},
    "W64": {"format": "W64"},
    "FLAC": {"format": "FLAC"},
    "OGG": {"format": "OGG"},
    "OPUS": {"format": "OGG", "subtype": "OPUS"},
    "MP3": {"format": "MP3"},
    "AIFF": {"format": "AIFF"},
    "AU": {"format": "AU"},
    "CAF": {"format": "CAF"},
}


def file_of(name: str) -> bytes:
    options = FORMATS[name]
    return encoded(WAVE, 8_000 if name == "GSM" else 16_000, **options)


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_told_by_their_first_bytes_and_decoded(name: str) -> None:
    data = file_of(name)
    assert format_of(data[:12]) is not None
    found = Decoder(16_000, "mean", 10)(Sound(data))
    assert len(found) >= 4_000 and np.isfinite(found).all()


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_refused_or_decoded(name: str) -> None:
    chance, data, decode = random.Random(name), file_of(name), Decoder(16_000, "mean", 10)
    for turn in range(120):
        damaged = bytearray(data)
        for _ in range(chance.randint(1, 8)):
            # Headers are at the start; half of the damage is there.
            at = chance.randrange(min(len(damaged), 100) if turn % 2 else len(damaged))
            damaged[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        damaged = damaged[: chance.choice((len(damaged), chance.randrange(1, len(damaged))))]
        try:
            found = decode(Sound(bytes(damaged)))
        except ServiceError as error:
            assert ".py" not in error.message and "/tmp" not in error.message
            continue
        assert found.dtype == np.float32 and 0 < len(found) <= 16_000 * 10 + 1


@pytest.mark.parametrize("other", ["IRCAM", "SVX", "NIST", "PAF", "MAT4", "VOC", "AVR", "HTK", "XI", "PVF"])
def test_rare_formats_are_refused(other: str) -> None:
    try:
        data = encoded(WAVE, 16_000, format=other)
    except Exception:
        pytest.skip("this libsndfile does not write it to memory")
    with pytest.raises(ServiceError):
        Decoder(16_000, "mean", 10)(Sound(data))


@pytest.mark.parametrize("rate", [0, 2**31, 2**32 - 1])
def test_a_header_without_a_rate_is_named(rate: int) -> None:
    with pytest.raises(ServiceError, match="found a header without a sample rate or channels, expected 1,000 to 384,0"):
        Decoder(16_000, "mean", 10)(Sound(wav(np.zeros(100, np.int16), rate)))


def lying_flac(samples: int) -> bytes:
    """Return a FLAC file whose header claims so many samples."""
    data = bytearray(file_of("FLAC"))
    # STREAMINFO: 20 bits of rate, 3 of channels, 5 of depth, 36 of samples, from byte 18 on.
    fields = struct.unpack_from(">Q", data, 18)[0] >> 36 << 36 | samples
    struct.pack_into(">Q", data, 18, fields)
    return bytes(data)


def test_a_flac_that_claims_hours_is_refused_before_decoding() -> None:
    with pytest.raises(RequestTooLargeError, match="the sound is too long: found 4,294,967"):
        Decoder(16_000, "mean", 10)(Sound(lying_flac(2**36 - 1)))


@pytest.mark.parametrize("samples", [0, 1, 100])
def test_a_flac_that_claims_too_little_is_bounded(samples: int) -> None:
    budget = MemoryBudget(1 << 24)
    with budget.open() as reservation:
        found = Decoder(16_000, "mean", 10)(Sound(lying_flac(samples)))
        assert 0 < len(found) <= len(WAVE)
        assert reservation.held >= 4 * len(found)
        reservation.close()


def test_memory_is_reserved_before_a_long_sound_is_decoded() -> None:
    budget = MemoryBudget(4 << 20)
    body = wav(np.zeros(2_000_000, np.int16), 8_000)
    with budget.open() as reservation, pytest.raises(RequestTooLargeError, match="needs too much memory"):
        Decoder(16_000, "mean", 1_000)(Sound(body))
    reservation.close()
    assert budget.used == 0
