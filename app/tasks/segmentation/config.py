"""[segmentation]: what a model's config.toml says of classes of pixels."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.schema import ClassIndex, Fraction, NotNegative, Section

Color = Annotated[str, Field(pattern="^#[0-9a-fA-F]{6}$")]


class SegmentationConfig(Section):
    """How the network's outputs become a class for every pixel of the picture."""

    output: str | None = Field(
        default=None,
        description="Output with scores (N, classes, H, W) or class indices (N, H, W); default: the first.",
    )
    activation: Literal["auto", "softmax", "sigmoid", "none"] = Field(
        default="auto",
        description="What makes scores probabilities; auto: softmax, for one channel sigmoid, none for what is one.",
    )
    threshold: Fraction | None = Field(
        default=None,
        description="Least probability of a class, else it is background; default: 0.5 for sigmoid and one channel.",
    )
    background: ClassIndex | Literal["auto"] = Field(
        default="auto",
        description="Class that is nothing: not listed, transparent in the mask; auto: 0 for one channel and where the"
        " first label is background, else none.",
    )
    colors: tuple[Color, ...] | None = Field(
        default=None,
        description='Colours of the classes as "#rrggbb", repeated if too few; default: a generated palette.',
    )
    min_area: NotNegative = Field(
        default=0, description="Classes with fewer pixels of the picture sent are left out of list and mask."
    )
