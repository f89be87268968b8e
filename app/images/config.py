"""Table [preprocess] of a model's config.toml."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

import engine
from app.errors import ConfigError
from app.images.palette import Color, parsed
from app.schema import Channels, Finite, NotNegative, Positive, Section

NonZero = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class PreprocessConfig(Section):
    """Conversion of pictures to the network's input: value = (pixel * scale - mean) / std, per channel."""

    size: tuple[NotNegative, NotNegative] | None = Field(
        default=None,
        description="Height and width of the network's input; default: as the graph has them. letterbox: one may be 0,"
        " and follows from the other and the picture.",
    )
    resize: Literal["stretch", "crop", "letterbox", "limit", "none"] = Field(
        default="stretch",
        description="How a picture gets that size. limit: dynamic size, sides between min_side and max_side, each"
        " rounded to a multiple. none: it must have it; where size is dynamic any picture will do.",
    )
    crop_fraction: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.875, description="crop: the shorter side becomes size / crop_fraction, then the middle is cut out."
    )
    fill: Annotated[float, Field(ge=0, le=255)] = Field(
        default=114, description="letterbox, max_aspect: pixel value around the picture."
    )
    align: Literal["center", "corner"] = Field(
        default="center", description="letterbox: position of the picture on the input; corner: at the top left."
    )
    multiple: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=1,
        description="none, dynamic size: height and width grow to a multiple of it, by repeating last row and column;"
        " letterbox: what follows grows to one, by filling; limit: both sides are rounded to one, by resizing.",
    )
    min_side: Positive | None = Field(
        default=None,
        description="limit: least size of the shorter side; letterbox: least of the side that follows, by filling.",
    )
    max_side: Positive | None = Field(
        default=None,
        description="limit: most size of the longer side; letterbox: most of the side that follows, by squeezing.",
    )
    max_aspect: Annotated[float, Field(ge=1, le=1000)] | None = Field(
        default=None,
        description="limit: a picture wider than so many times its height gets fill above and below, until it is half"
        " as wide, so that text detectors see a line of text as one.",
    )
    max_pixels: Positive | None = Field(
        default=None, description="Largest picture this model takes, in pixels; default: the server's max_pixels."
    )
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "box"] = Field(
        default="bilinear", description="Pillow's filter for resizing."
    )
    color: Literal["rgb", "bgr", "grey"] | None = Field(
        default=None, description="Channels of the input; default: grey for one channel, rgb for three."
    )
    scale: Finite | None = Field(
        default=None, description="Factor of a pixel (0..255); default: 1/255, for uint8 inputs 1."
    )
    mean: Channels = Field(
        default=(0.0,), description="What is subtracted, after scale: one number, or one for each channel."
    )
    std: Annotated[tuple[NonZero, ...], Field(min_length=1, max_length=4)] = Field(
        default=(1.0,), description="What is divided by, after mean: one number, or one for each channel."
    )
    layout: Literal["nchw", "nhwc"] = Field(default="nchw", description="Order of the input's dimensions.")
    alpha: str = Field(default="white", description="Colour that transparent pictures are laid on: a name or #rrggbb.")

    @model_validator(mode="after")
    def _one_side_may_follow(self) -> Self:
        if self.size is not None and 0 in self.size and (self.resize != "letterbox" or self.size == (0, 0)):
            raise ValueError(f"size: found {list(self.size)}, expected a 0 with letterbox only, and only one")
        least, most = self.min_side, self.max_side
        if least is not None and most is not None and least > most:
            raise ValueError(f"min_side: found {least}, expected at most max_side, {most}")
        return self

    @property
    def follows(self) -> bool:
        """Return whether one side of the network's input follows from the other and the picture."""
        return self.size is not None and 0 in self.size


_COLORS: Final = {1: "grey", 3: "rgb"}


def takes_pictures(port: engine.Port, layout: str = "nchw") -> bool:
    """Return whether an input can take pictures: four dimensions, one or three channels, float or uint8."""
    if port.spec is None or len(port.spec.shape) != 4:
        return False
    channels = port.spec.shape[1 if layout == "nchw" else 3]
    return channels in _COLORS and (port.spec.dtype == np.uint8 or np.dtype(port.spec.dtype).kind in "fV")


def completed(port: engine.Port, config: PreprocessConfig) -> PreprocessConfig:
    """Return the config with missing keys derived from the input's shape and dtype.

    Raises:
        ConfigError: it contradicts the input, or has no size, and that of the input is dynamic.
    """
    shape = port.spec.shape if port.spec is not None and len(port.spec.shape) == 4 else (None,) * 4
    channels, height, width = (shape[1], shape[2], shape[3]) if config.layout == "nchw" else (shape[3], *shape[1:3])
    size = config.size or (None if height is None or width is None else (height, width))
    if config.resize == "limit" and (size is not None or not (config.min_side or config.max_side)):
        found = f"size {list(size)}" if size is not None else "neither"
        raise ConfigError(f"preprocess.resize: found 'limit' with {found}, expected min_side or max_side, and no size")
    if size is None and config.resize not in ("limit", "none"):
        raise ConfigError(f"preprocess.size: missing, and input '{port.name}' has dynamic height and width")
    if size is not None and ((height or size[0]), (width or size[1])) != size:
        raise ConfigError(
            f"preprocess.size: found {list(size)}, expected {[height, width]} as input '{port.name}' has it"
        )
    if config.multiple > 1 and not config.follows and (size is not None or config.resize not in ("limit", "none")):
        raise ConfigError(
            f"preprocess.multiple: found {config.multiple}, expected 1 where size is not dynamic or resize not 'none'"
        )
    if not config.follows and config.resize != "limit" and (config.min_side or config.max_side):
        key = "min_side" if config.min_side else "max_side"
        raise ConfigError(
            f"preprocess.{key}: found with resize '{config.resize}', expected 'limit', or 'letterbox' with a 0 in size"
        )
    if config.max_aspect is not None and config.resize != "limit":
        raise ConfigError(f"preprocess.max_aspect: found with resize '{config.resize}', expected 'limit'")
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
    return _normalised(np.arange(256), config, dtype, channels)


def padding_values(config: PreprocessConfig, dtype: np.dtype[Any], channels: int) -> NDArray[Any]:
    """Return the network's value of the padding around a picture, per channel: (channels,)."""
    return _normalised(np.array([config.fill]), config, dtype, channels)[:, 0]


def _normalised(pixels: NDArray[Any], config: PreprocessConfig, dtype: np.dtype[Any], channels: int) -> NDArray[Any]:
    for key, given in (("mean", config.mean), ("std", config.std)):
        if len(given) not in (1, channels):
            raise ConfigError(f"preprocess.{key}: found {len(given)} values, expected 1 or {channels}")
    mean, std = (np.broadcast_to(np.asarray(values), (channels,))[:, None] for values in (config.mean, config.std))
    values = (pixels * (1.0 if config.scale is None else config.scale) - mean) / std
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
