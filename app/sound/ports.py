"""Inputs of a model for sounds, found by name and shape, and their tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from app.content import kinds_by_input
from app.errors import ConfigError
from app.messages import quoted
from app.sound.config import SoundConfig

_KINDS: Final = ("input", "lengths", "mask", "rate")
# Names in use, by kind.
_ALIASES: Final = {
    "input": (),
    "lengths": ("length", "lens", "x_lens", "x_length", "feature_lengths", "input_lengths", "audio_lengths"),
    "mask": ("attention_mask",),
    "rate": ("sr", "sample_rate", "sampling_rate"),
}


class SoundPorts:
    """Inputs of a model for sounds.

    Attributes:
        sound: input that takes waves or features.
        length: samples or frames of that input; None if any number will do.

    Args:
        ports: inputs of the model, without those of states.
        config: table [sound].

    Raises:
        ConfigError: the inputs are not those of a model for sounds, or a key names no input.
    """

    def __init__(self, ports: Sequence[engine.Port], config: SoundConfig) -> None:
        self._config = config
        self._ports = _by_kind(ports, config)
        self.sound = self._ports["input"]
        self._shape = _shape_of(self.sound, config)
        self._is_turned = config.features != "wave" and _is_time_first(self._shape, config)
        size = self._shape[-2 if self._is_turned else -1]
        self.length = size if isinstance(size, int) else None

    def tensors(self, rows: NDArray[np.float32], counts: Sequence[int]) -> dict[str, NDArray[Any]]:
        """Return the inputs of a run by name.

        Args:
            rows: waves (N, samples), or features (N, features, frames).
            counts: for each row, how many samples or frames are not padding.
        """
        size = rows.shape[-1]
        made: dict[str, NDArray[Any]] = {}
        for kind, port in self._ports.items():
            dtype = np.dtype(np.float32) if port.spec is None else port.spec.dtype
            if kind == "input":
                made[port.name] = self._rows(rows, dtype)
            elif kind == "rate":
                made[port.name] = np.full(_sizes(port), self._config.sample_rate, dtype)
            elif kind == "mask":
                made[port.name] = (np.arange(size) < np.array(counts)[:, None]).astype(dtype)
            else:  # a share of the row where the model takes no whole numbers
                made[port.name] = np.array(counts, np.float64 if dtype.kind == "f" else dtype)
                made[port.name] = (made[port.name] / size).astype(dtype) if dtype.kind == "f" else made[port.name]
        return made

    def _rows(self, rows: NDArray[np.float32], dtype: np.dtype[Any]) -> NDArray[Any]:
        rows = rows.swapaxes(1, 2) if self._is_turned else rows
        shaped = rows[:, None] if len(self._shape) > rows.ndim else rows
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            shaped = np.clip(np.rint(shaped), limits.min, limits.max)
        return np.ascontiguousarray(shaped, dtype)


def _sizes(port: engine.Port) -> list[int]:
    return [] if port.spec is None else [1 if size is None else size for size in port.spec.shape]


def _shape_of(port: engine.Port, config: SoundConfig) -> tuple[int | None, ...]:
    """Return the shape of the input that takes the sound.

    Raises:
        ConfigError: it cannot take waves or features.
    """
    is_wave = config.features == "wave"
    if port.spec is None:
        return (None,) * (2 if is_wave else 3)
    shape = port.spec.shape
    if not _fits(port, config):
        expected = "(N, samples) or (N, 1, samples)" if is_wave else (
            f"(N, {config.size}, frames) or (N, frames, {config.size}), maybe with a dimension of 1 after N"
        )  # fmt: skip
        raise ConfigError(f"sound.input: found '{port.name}' of shape {port.shape_text}, expected {expected}")
    return shape


def _fits(port: engine.Port, config: SoundConfig) -> bool:
    if port.spec is None:
        return True
    shape, base = port.spec.shape, 2 if config.features == "wave" else 3
    if len(shape) not in (base, base + 1) or (len(shape) > base and shape[1] not in (1, None)):
        return False
    return base == 2 or any(size in (None, config.size) for size in shape[-2:])


def _is_time_first(shape: tuple[int | None, ...], config: SoundConfig) -> bool:
    if config.layout is not None:
        return config.layout == "time-feature"
    return shape[-1] == config.size and shape[-2] != config.size


def _by_kind(ports: Sequence[engine.Port], config: SoundConfig) -> dict[str, engine.Port]:
    """Return the model's inputs in their order, by what they take.

    Raises:
        ConfigError: an input takes none of these, or a key names no input.
    """
    given = kinds_by_input("sound", {kind: getattr(config, kind) for kind in _KINDS}, ports)
    found: dict[str, engine.Port] = {}
    for port in ports:
        kind = given.get(port.name) or _kind_of(port.name)
        if kind is None and "input" not in (*found, *given.values()):
            kind = "input"
        if kind is None or kind in found:
            raise ConfigError(
                f"sound: input '{port.name}': expected one key of {quoted(_KINDS)} in the table [sound] to name it, or"
                " [states] if it is the state of a stream"
            )
        found[kind] = port
    if "input" not in found:
        raise ConfigError(f"sound.input: missing, expected one of {quoted(port.name for port in ports)}")
    return found


def _kind_of(name: str) -> str | None:
    return next((kind for kind in _KINDS if name == kind != "input" or name in _ALIASES[kind]), None)
