"""What pydantic describes: tables of a model's config.toml, bodies of answers, and the kinds of values in them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Channels = Annotated[tuple[Finite, ...], Field(min_length=1, max_length=4)]
ClassIndex = NotNegative | Literal["none"]


class Section(BaseModel):
    """Base of every table of the file. A key that is not in it is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Body(BaseModel):
    """Base of the shapes of answers. Nothing is validated against them at run time."""

    model_config = ConfigDict(extra="allow")
