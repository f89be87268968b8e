"""Decoding of sounds to one channel at the model's sample rate, with limits checked before any sample is decoded.

Files are decoded by libsndfile in blocks, mixed to one channel and resampled block by block, so that memory follows the
length of the result. What a header claims only bounds the length: samples count as they are found. Decoding stops when
the request is cancelled.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from app.errors import ConfigError, InputMismatchError, InvalidRequestError, RequestTooLargeError
from app.memory.reservation import charge, charged, check
from app.messages import safe_text
from app.sound.config import MAX_RATE, MIN_RATE
from app.sound.sound import Channels, Recording, Sound, Wave

# Media types by the format's name in libsndfile; other formats of the library are refused.
FORMATS: Final = {
    "WAV": "audio/wav", "WAVEX": "audio/wav", "RF64": "audio/wav", "W64": "audio/x-w64", "FLAC": "audio/flac",
    "OGG": "audio/ogg", "MP3": "audio/mpeg", "AIFF": "audio/aiff", "AU": "audio/basic", "CAF": "audio/x-caf",
}  # fmt: skip
_MAX_CHANNELS: Final = 32
# Samples of all channels that are decoded in one call.
_BLOCK: Final = 1 << 18
# Memory of a decoder and a resampler.
_DECODER_BYTES: Final = 1 << 20
# What libsndfile says of a header whose rate or number of channels is 0 or negative.
_NO_INFO: Final = "SF_INFO"
_NO_RATE: Final = (
    f"found a header without a sample rate or channels, expected {MIN_RATE:,} to {MAX_RATE:,} samples per second and 1"
    f" to {_MAX_CHANNELS} channels"
)
# What libsndfile says for a length that it does not know.
_UNKNOWN: Final = 2**62
_MAGIC: Final = (
    (b"fLaC", "audio/flac"), (b"OggS", "audio/ogg"), (b".snd", "audio/basic"), (b"caff", "audio/x-caf"),
    (b"riff", "audio/x-w64"), (b"ID3", "audio/mpeg"), (b"\xff\xfa", "audio/mpeg"), (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"), (b"\xff\xf2", "audio/mpeg"),
)  # fmt: skip


class Decoder:
    """Decoder of the sounds of one model, for many threads at once.

    Args:
        rate: samples per second of the result.
        channel: how several channels become one.
        max_seconds: longest sound.

    Raises:
        ConfigError: the extra is not installed.
    """

    def __init__(self, rate: int, channel: Literal["mean", "first"], max_seconds: float) -> None:
        _check_libraries()
        self._rate = rate
        self._is_mean = channel == "mean"
        self._max_seconds = max_seconds

    def __call__(self, sound: Sound | Recording) -> Wave:
        """Return the samples, -1 to 1.

        Raises:
            InvalidRequestError: the file cannot be read.
            InputMismatchError: it has no samples, or values that are not numbers.
            RequestTooLargeError: it is too long.
        """
        if isinstance(sound, Recording):
            charge(4 * self._rate * len(sound.samples) // sound.rate)
            blocks = iter([(sound.rate, sound.samples)])
        else:
            blocks = _blocks(sound, self._max_seconds, lambda header: 4 * self._rate / header.rate)
        pieces = list(self._resampled(blocks))
        wave = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        if not np.isfinite(wave).all():
            raise InputMismatchError(f"{sound.label}: found samples that are not finite, expected numbers")
        return wave

    def _resampled(self, blocks: Iterator[tuple[int, Channels]]) -> Iterator[Wave]:
        """Yield the samples in pieces, at the rate of the model."""
        stream = None
        for rate, block in blocks:
            wave = block.mean(axis=1) if self._is_mean and block.shape[1] > 1 else block[:, 0].copy()
            if rate != self._rate:
                stream = open_resampler(rate, self._rate) if stream is None else stream
                wave = stream.resample_chunk(wave)
            yield wave
        if stream is not None:
            yield stream.resample_chunk(np.zeros(0, np.float32), last=True)


def decode_once(sound: Sound | Recording, max_seconds: float) -> Recording:
    """Return a sound as it was recorded, with all channels, which several steps of a pipeline read.

    Raises:
        ServiceError: as ``Decoder``.
    """
    if isinstance(sound, Recording):
        return sound
    blocks = list(_blocks(sound, max_seconds, lambda header: 4 * header.channels))
    with charged(sum(block.nbytes for _, block in blocks)):
        samples = np.concatenate([block for _, block in blocks])
    return Recording(samples, blocks[0][0], sound.label)


def _check_libraries() -> None:
    """Raise unless the extra is installed.

    Raises:
        ConfigError: it is not, or lacks the C library.
    """
    try:
        import soundfile  # noqa: F401
        import soxr  # noqa: F401
    except ImportError:
        raise ConfigError("sound: decoding needs the extra 'audio': pip install 'pnnx-serve[audio]'") from None
    except OSError as error:  # soundfile without the C library
        raise ConfigError(f"sound: the library sndfile cannot be loaded: {safe_text(str(error), 200)}") from None


def _blocks(sound: Sound, max_seconds: float, cost: Callable[[_Header], float]) -> Iterator[tuple[int, Channels]]:
    """Yield the sample rate, and the samples (samples, channels) of a file in blocks.

    Args:
        sound: the file.
        max_seconds: longest sound.
        cost: bytes to charge for each sample of all channels.

    Raises:
        ServiceError: as ``Decoder``.
    """
    import soundfile

    if format_of(bytes(sound.data[:12])) is None:  # libsndfile would read rare formats too
        raise _unreadable(sound, f"found no known format, expected one of {_names()}")
    with charged(len(sound.data) + _DECODER_BYTES + 8 * _BLOCK):
        try:
            with soundfile.SoundFile(_Contents(sound.data)) as file:
                header = _checked(sound, file, max_seconds)
                charge(int(header.samples * cost(header)))
                for block in _samples(sound, file, header, max_seconds, cost):
                    yield header.rate, block
        except soundfile.LibsndfileError as error:
            raise _unreadable(sound, _NO_RATE if _NO_INFO in error.error_string else str(error.error_string)) from None
        except (RuntimeError, ValueError, TypeError) as error:  # soundfile's own checks
            raise _unreadable(sound, str(error)) from None


def _checked(sound: Sound, file: Any, max_seconds: float) -> _Header:
    """Return the header of an opened file after the checks that it allows."""
    header = _Header(str(file.format), int(file.samplerate), int(file.channels), int(file.frames))
    if header.format not in FORMATS:
        raise InvalidRequestError(f"{sound.label}: found format {header.format}, expected one of {_names()}")
    if not MIN_RATE <= header.rate <= MAX_RATE:
        raise InputMismatchError(
            f"{sound.label}: found {header.rate:,} samples per second, expected {MIN_RATE:,} to {MAX_RATE:,}"
        )
    if not 1 <= header.channels <= _MAX_CHANNELS:
        raise InputMismatchError(f"{sound.label}: found {header.channels} channels, expected at most {_MAX_CHANNELS}")
    if not 0 <= header.samples < _UNKNOWN:
        file.seekable = lambda: False  # soundfile seeks after each block, which fails in a file of unknown length
        return header._replace(samples=0)
    _check_length(sound, header.samples, header.rate, max_seconds)
    return header


def _check_length(sound: Sound, samples: int, rate: int, max_seconds: float) -> None:
    if samples > max_seconds * rate:
        raise RequestTooLargeError(
            f"{sound.label} is too long: found {samples / rate:,.1f} s, expected at most {max_seconds:g}",
            found=round(samples / rate, 1),
            limit=max_seconds,
        )


def _samples(
    sound: Sound, file: Any, header: _Header, max_seconds: float, cost: Callable[[_Header], float]
) -> Iterator[Channels]:
    """Yield the samples of an opened file."""
    found, size = 0, max(1, _BLOCK // header.channels)
    while True:
        check()
        block = file.read(size, dtype="float32", always_2d=True)
        if found + len(block) > header.samples:  # more than the header told, or it told nothing
            charge(int(len(block) * cost(header)))
        found += len(block)
        _check_length(sound, found, header.rate, max_seconds)
        if len(block):
            yield block
        if len(block) < size:
            break
    if not found:
        raise InputMismatchError(f"{sound.label}: found no samples, expected at least one")


def open_resampler(rate: int, wanted: int) -> Any:
    """Return a resampler of one channel in pieces."""
    import soxr

    return soxr.ResampleStream(rate, wanted, 1, dtype="float32", quality="HQ")


class _Contents(io.BytesIO):
    """Contents of a file; a seek to before its start, which damaged headers ask for, does nothing."""

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Return the position after the seek."""
        try:
            return super().seek(offset, whence)
        except (OverflowError, ValueError):
            return self.tell()


class _Header(NamedTuple):
    """Properties of a file as its header tells them; samples are 0 where it does not know."""

    format: str
    rate: int
    channels: int
    samples: int


def format_of(start: bytes) -> str | None:
    """Return the media type of a sound by its first twelve bytes, or None."""
    if start[:4] in (b"RIFF", b"RIFX", b"RF64") and start[8:12] == b"WAVE":
        return "audio/wav"
    if start[:4] == b"FORM" and start[8:12] in (b"AIFF", b"AIFC"):
        return "audio/aiff"
    return next((kind for magic, kind in _MAGIC if start.startswith(magic)), None)


def _names() -> str:
    return ", ".join(FORMATS)


def _unreadable(sound: Sound, why: str) -> InvalidRequestError:
    return InvalidRequestError(f"{sound.label} cannot be read: {safe_text(why.rstrip('.'), 200)}")
