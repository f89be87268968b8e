"""Streams of samples: whatever the pieces, the windows are those of the whole sound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import ConfigError, InputMismatchError, RequestTooLargeError
from app.sound.config import SoundConfig
from app.sound.stream import SoundStream
from app.sound.windows import Windows

soxr = pytest.importorskip("soxr", reason="needs the extra audio")
RATE = 1_000


def windows(size: int | None, overlap: int = 0, context: int = 0, rate: int = RATE) -> Windows:
    return Windows(size=size, overlap=overlap, context=context, least=1, is_padded=True, rate=rate)


@given(
    pieces=st.lists(st.integers(0, 25), max_size=12), size=st.integers(1, 20), overlap=st.integers(0, 19),
    context=st.integers(0, 5), share=st.sampled_from([0.0, 0.5]),
)  # fmt: skip
def test_the_windows_of_pieces_are_those_of_the_whole(
    pieces: list[int], size: int, overlap: int, context: int, share: float
) -> None:
    made = windows(size, min(overlap, size - 1), context)
    stream = SoundStream(SoundConfig(sample_rate=RATE, scale=32_768, preemphasis=share), made, RATE)
    samples = np.arange(1, sum(pieces) + 1, dtype="<i2")
    rows: list[list[float]] = []
    times: list[tuple[float, float]] = []
    at = 0
    for count in pieces:
        chunk = stream.take(samples[at : at + count].tobytes(), 600.0)
        at += count
        assert stream.end_s * RATE <= at
        if chunk is not None:
            rows += made.rows(chunk.wave, list(chunk.spans)).tolist()
            times += [((a + chunk.offset) / RATE, (b + chunk.offset) / RATE) for a, b in chunk.spans]
            assert (times[-1][1], times[-len(chunk.spans)][0]) == (stream.end_s, stream.start_s)
    whole = samples.astype(np.float32)
    whole = np.concatenate([whole[:1], whole[1:] - share * whole[:-1]])
    spans = [span for span in made.spans(len(whole)) if span[1] - span[0] == size]
    expected = [[0.0] * max(0, context - a) + whole[max(0, a - context) : b].tolist() for a, b in spans]
    assert rows == expected
    assert times == [(a / RATE, b / RATE) for a, b in spans]


def test_pieces_of_another_rate_are_resampled_as_one_sound() -> None:
    rate, size = 48_000, 512
    stream = SoundStream(SoundConfig(), windows(size, rate=16_000), rate)
    samples = (8_000 * np.sin(np.arange(rate) * 2 * np.pi * 440 / rate)).astype("<i2")
    chunks = [stream.take(samples[at : at + 4_800].tobytes(), 600.0) for at in range(0, rate, 4_800)]
    found = np.concatenate([chunk.wave[a:b] for chunk in chunks if chunk is not None for a, b in chunk.spans])
    expected = soxr.resample(samples / np.float32(32_768), rate, 16_000)
    assert 15_000 < len(found) <= 16_000
    np.testing.assert_allclose(found, expected[: len(found)], atol=1e-3)


def test_what_is_no_piece_of_a_stream_is_refused() -> None:
    stream = SoundStream(SoundConfig(sample_rate=RATE), windows(10), RATE)
    with pytest.raises(InputMismatchError, match=r"^the sound: found 3 bytes, expected samples of 2$"):
        stream.take(b"abc", 1.0)
    with pytest.raises(RequestTooLargeError, match=r"found 1.5 s, expected at most 1$"):
        stream.take(bytes(3_000), 1.0)
    assert stream.take(b"", 1.0) is None
    with pytest.raises(ConfigError, match="sound.window_s"):
        SoundStream(SoundConfig(), windows(None), RATE)


def test_a_stream_keeps_no_more_than_a_window() -> None:
    stream = SoundStream(SoundConfig(sample_rate=RATE), windows(100, 50, 7), RATE)
    for _ in range(50):
        stream.take(bytes(2 * 333), 1.0)
        assert len(stream._wave) < 7 + 100
        assert stream._wave.base is None
