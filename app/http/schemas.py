"""The shapes of answers, for the OpenAPI document. Nothing is validated against them at run time."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Schema(BaseModel):
    """Base of the shapes."""

    model_config = ConfigDict(extra="allow")


class Problem(Schema):
    """What went wrong."""

    code: str = Field(description="Stable name of the kind of error.", examples=["input_mismatch"])
    message: str = Field(description="Where, what was found, what was expected.")
    detail: dict[str, Any] | None = Field(None, description="The same for programs.")


class ErrorBody(Schema):
    """The body of every error."""

    error: Problem


class Live(Schema):
    """The process answers."""

    live: Literal[True]


class Ready(Schema):
    """Every model runs."""

    ready: Literal[True]


class PortRow(Schema):
    """An input or output."""

    name: str
    shape: list[int | None] | None = Field(description="null for an open dimension; the first one may be any batch.")
    dtype: str | None


class VersionRow(Schema):
    """A version of a model; one that is ready has inputs, outputs and statistics as well.

    backend: what runs it, ``compiled`` or ``reference``; compile_failure: why nothing could be compiled.
    """

    version: int
    state: Literal["loading", "ready", "failed"]
    reason: str | None


class ModelRow(Schema):
    """A model in short."""

    name: str
    task: str
    default: bool = Field(description="Whether requests that name no model go here.")
    state: Literal["loading", "ready", "failed"]
    reason: str | None
    versions: list[VersionRow]


class ModelList(Schema):
    """All models."""

    models: list[ModelRow]


class ModelDetails(ModelRow):
    """A model in detail."""

    inputs: list[PortRow]
    outputs: list[PortRow]
    labels: list[str] | None
    preprocess: dict[str, Any] | None
    batching: dict[str, Any]


class TensorBody(Schema):
    """A tensor; data is flat, in row-major order."""

    shape: list[int]
    dtype: str
    data: list[Any]


class TimingBody(Schema):
    """Where the time went, in milliseconds."""

    queue_ms: float
    decode_ms: float
    preprocess_ms: float
    infer_ms: float
    postprocess_ms: float
    total_ms: float


class ClassBody(Schema):
    """A class found by a classification."""

    label: str
    probability: float | None
    index: int


class BoxBody(Schema):
    """A box found by a detection, [x0, y0, x1, y1] in pixels of the picture sent."""

    label: str
    score: float
    index: int
    box: list[float]


class AreaBody(Schema):
    """A class found by a segmentation; area in pixels of the picture sent, fraction of it."""

    label: str
    index: int
    area: int
    fraction: float
    color: str


class MaskBody(Schema):
    """What a segmentation found: its classes, largest first, and the mask, a PNG of the picture's size in base64."""

    classes: list[AreaBody]
    mask: str
    width: int
    height: int


class ImageBody(Schema):
    """The picture a model made, a PNG in base64."""

    image: str
    width: int
    height: int


FindingBody = list[ClassBody] | list[BoxBody] | MaskBody | ImageBody


class InferBody(Schema):
    """The answer of an inference."""

    model: str
    version: int
    outputs: dict[str, TensorBody] | None = Field(None, description="For pictures only when asked for.")
    predictions: FindingBody | list[FindingBody] | None = Field(
        None, description="By the model's task; for a batch of several items a list of what one item has."
    )
    timing: TimingBody
