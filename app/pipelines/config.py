"""Schema of ``pipeline.toml``."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, model_validator

from app.messages import safe_text
from app.schema import Fraction, Section

PIPELINE: Final = "pipeline.toml"
# Task of a pipeline in lists of models.
TASK: Final = "pipeline"
MAX_STEPS: Final = 32
MAX_ITEMS: Final = 1000
NAME_RULE: Final = "letters, digits, '_' and '-', a letter first, at most 64"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_MAX_VALUE: Final = 100


def _name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"found '{safe_text(name, _MAX_VALUE)}', expected {NAME_RULE}")
    return name


def _spelt_out(value: object) -> object:
    """Return the table for the short form, the name of a step."""
    return {"step": value} if isinstance(value, str) else value


StepName = Annotated[str, AfterValidator(_name)]
Number = StrictBool | int | Annotated[float, Field(allow_inf_nan=False)]
# A reference, or a constant of up to four dimensions.
Source = str | Number | list[Number] | list[list[Number]] | list[list[list[Number]]] | list[list[list[list[Number]]]]
# The least value of a number, the value of a text, or all allowed texts.
Condition = Annotated[float, Field(allow_inf_nan=False)] | str | tuple[str, ...]


class Turn(Section):
    """Turn of crops by the label that a classification has found."""

    step: str = Field(description="Step whose best label is the angle: 0, 90, 180 or 270 degrees.")
    score: Annotated[Fraction, Field(strict=True)] = Field(
        default=0.5, description="Least probability of the label; below it, crops stay as they are."
    )


class StepConfig(Section):
    """One step: a model of the store, and what it runs on."""

    name: StepName = Field(description="Name of the step, and of its result in the answer.")
    model: str = Field(description="Name of a model of the store; NAME:VERSION or NAME:TAG for one of its versions.")
    input: str | dict[str, Source] | None = Field(
        default=None,
        description="An input of the request, or a value of an earlier step: STEP.FIELD of its predictions, or"
        " STEP.outputs.NAME. A table has one for each input of the model; numbers in it are constants.",
    )
    crop: str | None = Field(
        default=None,
        description="Run on a crop of the picture for each prediction of an earlier step: at STEP.box, or at"
        " STEP.polygon, which is made upright.",
    )
    margin: Annotated[float, Field(ge=0, le=1, strict=True)] = Field(
        default=0.0, description="Share of the box's width and height that a crop is larger by, on each side."
    )
    turn: Annotated[Turn, BeforeValidator(_spelt_out)] | None = Field(
        default=None, description="Step that classifies the same crops by angle; they are turned back by it."
    )
    where: dict[str, dict[str, Condition]] = Field(
        default={},
        description="Conditions on fields of earlier steps, as in { STEP.score = 0.5, STEP.label = 'cat' }: the least"
        " number, the text, or all allowed texts.",
    )
    parameters: dict[str, Any] = Field(default={}, description="Parameters of the model's task, as requests have them.")

    @property
    def model_name(self) -> str:
        """Return the name of the model."""
        return self.model.partition(":")[0]

    @property
    def version(self) -> int | str | None:
        """Return the version's number or tag, or None for the highest."""
        version = self.model.partition(":")[2]
        return int(version) if version.isdecimal() and len(version) < 10 else version or None

    def as_dict(self) -> dict[str, Any]:
        """Return the keys that the file gives, as JSON."""
        return self.model_dump(mode="json", exclude_unset=True)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Reject keys that need another key, and a step without input."""
        if self.crop is None and ("margin" in self.model_fields_set or self.turn is not None):
            raise ValueError("margin and turn: expected with crop only")
        if self.crop is not None and isinstance(self.input, str):
            raise ValueError("found both input and crop, expected one, or a table of the other inputs")
        if self.crop is None and not self.input:
            raise ValueError("found neither input nor crop, expected one")
        return self


class PipelineConfig(Section):
    """Whole file."""

    step: Annotated[tuple[StepConfig, ...], Field(min_length=1, max_length=MAX_STEPS)] = Field(
        description="Steps, in the order in which they run."
    )
    max_items: Annotated[int, Field(ge=1, le=MAX_ITEMS, strict=True)] = Field(
        default=100, description="Predictions of a picture that a step runs on, at most; the first ones are taken."
    )
    default: StrictBool = Field(
        default=False, description="Whether requests that name no model mean this one, where the settings say nothing."
    )

    @property
    def models(self) -> tuple[str, ...]:
        """Return the names of the models, each once."""
        return tuple(dict.fromkeys(step.model_name for step in self.step))
