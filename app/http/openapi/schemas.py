"""The shapes of answers, for the OpenAPI document. Nothing is validated against them at run time."""

from __future__ import annotations

import functools
import operator
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from pydantic import Field, create_model

from app.schema import Body
from app.tasks.registry import TASKS

VersionNumber = Annotated[
    str | None,
    Query(
        description="its number, or a tag; the highest one without it",
        json_schema_extra={"pattern": "^([1-9][0-9]{0,8}|[A-Za-z][A-Za-z0-9._-]{0,63})$"},
    ),
]
"""Of a query; what fits the pattern or not is said by ``app.codec.message.read_version``."""


class Problem(Body):
    """What went wrong."""

    code: str = Field(description="Stable name of the kind of error.", examples=["input_mismatch"])
    message: str = Field(description="Where, what was found, what was expected.")
    detail: dict[str, Any] | None = Field(None, description="The same for programs.")


class ErrorBody(Body):
    """The body of every error."""

    error: Problem


# What a route tells FastAPI of an error. Its model, given each time, would be looked through for each anew.
REFUSED: Final = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}}


class Live(Body):
    """The process answers."""

    live: Literal[True]


class Ready(Body):
    """Every model runs."""

    ready: Literal[True]


class PortRow(Body):
    """An input or output."""

    name: str
    shape: list[int | None] | None = Field(description="null for an open dimension; the first one may be any batch.")
    dtype: str | None
    size_names: list[str | None] | None = Field(
        default=None, description="What the file calls open dimensions; absent where it names none."
    )


class DefectRow(Body):
    """A defect of the compiler; operator and type are empty where it concerns the whole graph."""

    operator: str
    type: str
    error: str


class VersionRow(Body):
    """A version of a model; one that is ready has inputs, outputs and statistics as well.

    backend: what runs it, ``compiled`` or ``reference``; compile_failure: why nothing could be compiled; remark:
    why the warm-up on zeros failed, though the version is ready.
    """

    version: int
    state: Literal["loading", "ready", "failed"]
    reason: str | None
    compiler_defects: list[DefectRow] | None = Field(
        default=None,
        description="In GET /models/{name}: failures of the compiler that it does not foresee, at most 16.",
    )


class ModelRow(Body):
    """A model in short."""

    name: str
    task: str
    default: bool = Field(description="Whether requests that name no model go here.")
    state: Literal["loading", "ready", "failed", "unloaded"]
    reason: str | None
    tags: dict[str, int] = Field(description="Names that stand for versions, and for which.")
    versions: list[VersionRow]


class ModelList(Body):
    """All models."""

    models: list[ModelRow]


class ModelDetails(ModelRow):
    """A model in detail."""

    inputs: list[PortRow]
    outputs: list[PortRow]
    labels: list[str] | None
    preprocess: dict[str, Any] | None
    batching: dict[str, Any] = Field(description="Whether requests share runs, why, and what was measured.")


class TensorBody(Body):
    """A tensor; data is flat, in row-major order."""

    shape: list[int]
    dtype: str
    data: list[Any]


class TimingBody(Body):
    """Where the time went, in milliseconds."""

    queue_ms: float
    decode_ms: float
    preprocess_ms: float
    infer_ms: float
    postprocess_ms: float
    total_ms: float


class InferBody(Body):
    """The answer of an inference."""

    model: str
    version: int
    outputs: dict[str, TensorBody] | None = Field(None, description="For pictures only when asked for.")
    predictions: Any = None
    timing: TimingBody


def infer_body() -> type[InferBody]:
    """The answer of an inference, with what the tasks predict."""
    found: Any = functools.reduce(operator.or_, [task.FINDING for task in TASKS.values() if task.FINDING is not None])
    text = "By the model's task; for a batch of several items a list of what one item has."
    predictions: Any = (found | list[found] | None, Field(None, description=text))
    return create_model("InferBody", __base__=InferBody, __doc__=InferBody.__doc__, predictions=predictions)
