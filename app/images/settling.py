"""Completion of a [preprocess] table at load, from the input's shape and dtype."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from app.errors import ConfigError
from app.images.config import PreprocessConfig
from app.images.palette import Color, parsed

_COLORS: Final = {1: "grey", 3: "rgb"}


def takes_pictures(port: engine.Port, layout: str = "nchw") -> bool:
    """Return whether an input can take pictures: four dimensions, one or three channels, float or uint8."""
    if port.spec is None or len(port.spec.shape) != 4:
        return False
    channels = port.spec.shape[1 if layout == "nchw" else 3]
    return channels in _COLORS and (port.spec.dtype == np.uint8 or np.dtype(port.spec.dtype).kind in "fV")


def settled(port: engine.Port, config: PreprocessConfig) -> PreprocessConfig:
    """Return the config with open keys derived from the input's shape and dtype.

    Raises:
        ConfigError: it contradicts the input, or leaves a size open that the input leaves open too.
    """
    shape = port.spec.shape if port.spec is not None and len(port.spec.shape) == 4 else (None,) * 4
    channels, height, width = (shape[1], shape[2], shape[3]) if config.layout == "nchw" else (shape[3], *shape[1:3])
    size = config.size or (None if height is None or width is None else (height, width))
    if size is None and config.resize != "none":
        raise ConfigError(f"preprocess.size: missing, and input '{port.name}' leaves its height and width open")
    if size is not None and ((height or size[0]), (width or size[1])) != size:
        raise ConfigError(
            f"preprocess.size: found {list(size)}, expected {[height, width]} as input '{port.name}' has it"
        )
    follows = size is not None and 0 in size
    if config.multiple > 1 and not follows and (size is not None or config.resize != "none"):
        raise ConfigError(
            f"preprocess.multiple: found {config.multiple}, expected 1 where size is not open or resize not 'none'"
        )
    color = config.color or _COLORS.get(channels if channels is not None else 3)
    if color is None or (channels is not None and channels != (1 if color == "grey" else 3)):
        found = f"'{color}'" if color else "nothing"
        raise ConfigError(f"preprocess.color: found {found}, but input '{port.name}' has {channels} channels")
    is_uint8 = port.spec is not None and port.spec.dtype == np.uint8
    scale = config.scale if config.scale is not None else (1.0 if is_uint8 else 1 / 255)
    return config.model_copy(update={"size": size, "color": color, "scale": scale})


def pixel_values(config: PreprocessConfig, dtype: np.dtype[Any], channels: int) -> NDArray[Any]:
    """Return the network's value of each of the 256 pixel values, per channel in its order: (channels, 256).

    Raises:
        ConfigError: mean or std have a wrong number of channels.
    """
    for key, given in (("mean", config.mean), ("std", config.std)):
        if len(given) not in (1, channels):
            raise ConfigError(f"preprocess.{key}: found {len(given)} values, expected 1 or {channels}")
    mean, std = (np.broadcast_to(np.asarray(values), (channels,))[:, None] for values in (config.mean, config.std))
    values = (np.arange(256) * (1.0 if config.scale is None else config.scale) - mean) / std
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        values = np.clip(np.rint(values), limits.min, limits.max)
    known: NDArray[Any] = values.astype(dtype)
    return known


def background(name: str) -> Color:
    """Return the colour behind transparent pixels.

    Raises:
        ConfigError: the name is not a colour.
    """
    try:
        return parsed(name)
    except ValueError:
        raise ConfigError(f"preprocess.alpha: found '{name}', expected a colour such as 'white' or '#ffffff'") from None
