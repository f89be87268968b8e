"""Base classes and value types of pydantic models: tables of config.toml, and bodies of answers."""

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
    """Base of all tables of config.toml. An unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Body(BaseModel):
    """Base of the schemas of answers, which are documented but not validated."""

    model_config = ConfigDict(extra="allow")
