"""Table [preprocess] of a model's config.toml."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from app.schema import Channels, Finite, NotNegative, Positive, Section

NonZero = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class PreprocessConfig(Section):
    """Conversion of pictures to the network's input: value = (pixel * scale - mean) / std, per channel."""

    size: tuple[NotNegative, NotNegative] | None = Field(
        default=None,
        description="Height and width of the network's input; default: as the graph has them. letterbox: one may be 0,"
        " and follows from the other and the picture.",
    )
    resize: Literal["stretch", "crop", "letterbox", "none"] = Field(
        default="stretch",
        description="How a picture gets that size. none: it must have it; where size is open any picture will do.",
    )
    crop_fraction: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.875, description="crop: the shorter side becomes size / crop_fraction, then the middle is cut out."
    )
    fill: Annotated[int, Field(ge=0, le=255)] = Field(
        default=114, description="letterbox: pixel value around the picture."
    )
    multiple: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=1,
        description="none, size open: height and width grow to a multiple of it, by repeating the last row and column;"
        " letterbox: what follows grows to one, by filling.",
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
        return self
