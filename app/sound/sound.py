"""Sounds of a request, and pieces of sounds as rows of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Wave: TypeAlias = NDArray[np.float32]
# Samples of several channels, (samples, channels).
Channels: TypeAlias = NDArray[np.float32]

# Most sounds in a request.
MAX_SOUNDS: Final = 64


class Sound(NamedTuple):
    """Encoded sound of a request.

    Attributes:
        data: contents of the file.
        label: its name in messages.
    """

    data: bytes | bytearray | memoryview
    label: str = "the sound"


class Recording(NamedTuple):
    """Decoded sound, or a part of one, as it was recorded; steps of a pipeline share it.

    Attributes:
        samples: (samples, channels).
        rate: samples per second.
        label: its name in messages.
    """

    samples: Channels
    rate: int
    label: str

    def cut(self, start_s: float, end_s: float, label: str) -> Recording | None:
        """Return the part between two times, without a copy; None if it is empty."""
        length = len(self.samples)
        first, last = (round(min(max(0.0, at * self.rate), length)) for at in (start_s, end_s))
        return Recording(self.samples[first:last], self.rate, label) if first < last else None


class Chunk(NamedTuple):
    """Samples of a stream that make whole windows, as the model takes them: one channel, resampled and scaled.

    Attributes:
        wave: the samples, those of the first window's context included.
        spans: start and end of each window in them.
        offset: position of the first sample in the stream.
        memory: values that the task keeps between the chunks of the stream.
    """

    wave: Wave
    spans: tuple[tuple[int, int], ...]
    offset: int
    memory: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sounds:
    """Sounds of a request, as the value of an input."""

    items: tuple[Sound | Recording | Chunk, ...]


class Clip(NamedTuple):
    """Piece of a sound that is one row of a run.

    Attributes:
        start_s: position of its first sample in the sound.
        end_s: position after its last sample in the sound; padding begins there.
        seconds: length of the row, padding included.
        kept_s: the part of the sound that the row answers for; its neighbours answer for the rest, with which it
            overlaps.
        memory: of a stream, see ``Chunk``; None for a whole sound.
    """

    start_s: float
    end_s: float
    seconds: float
    kept_s: tuple[float, float]
    memory: dict[str, Any] | None = None
