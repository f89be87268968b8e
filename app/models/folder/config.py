"""Schema and reading of a model's config.toml. Every key is optional; unknown keys are errors.

Defaults that depend on the model (size and colours of pictures) are None and filled in at load.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import orjson
from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, ValidationError, create_model, model_validator

from app.errors import ConfigError
from app.images.config import PreprocessConfig
from app.messages import brief, safe_text
from app.models.folder.layout import CONFIG, MAX_VERSION, TAG_RULE, is_tag
from app.models.folder.toml import check_links, problems, read_toml
from app.models.sequences import SequencesConfig
from app.scheduling.config import BatchingConfig
from app.schema import Section
from app.sound.config import SoundConfig
from app.tasks.registry import TASKS
from app.tasks.task import Task
from app.text.config import TextConfig

MAX_VERSIONS: Final = 1000
MAX_TAGS: Final = 100
MAX_STATES: Final = 1_000
Version = Annotated[int, Field(ge=1, le=MAX_VERSION)]
_MAX_VALUE: Final = 100


def _tag(name: str) -> str:
    if not is_tag(name):
        raise ValueError(f"found '{safe_text(name, _MAX_VALUE)}', expected {TAG_RULE}")
    return name


Precision = Literal["float32", "bf16", "auto"]
Tag = Annotated[str, AfterValidator(_tag)]


class VersionPolicy(Section):
    """Choice of the versions to serve."""

    policy: Literal["latest", "all", "specific"] = Field(default="latest", description="Which versions are served.")
    latest: Annotated[int, Field(ge=1, le=MAX_VERSIONS)] = Field(
        default=1, description="With latest: how many, from the highest number down."
    )
    specific: Annotated[tuple[Version, ...], Field(max_length=MAX_VERSIONS)] = Field(
        default=(), description="With specific: their numbers."
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Reject keys of another policy, and a policy without versions."""
        given = self.model_fields_set
        if "latest" in given and self.policy != "latest":
            raise ValueError(f"latest: expected with policy 'latest' only, found '{self.policy}'")
        if "specific" in given and self.policy != "specific":
            raise ValueError(f"specific: expected with policy 'specific' only, found '{self.policy}'")
        if self.policy == "specific" and not self.specific:
            raise ValueError("specific: found no version, expected those to serve")
        return self


def _spelt_out(value: object) -> object:
    """Return the table for the short form: a policy's name or a list of numbers."""
    if isinstance(value, str):
        return {"policy": value}
    if isinstance(value, (list, tuple)):
        return {"policy": "specific", "specific": value}
    if not isinstance(value, (dict, VersionPolicy)):
        raise ValueError(f"found {safe_text(brief(value))}, expected 'latest', 'all', a list of numbers or a table")
    return value


class ResponseCacheConfig(Section):
    """Table [response_cache]: outputs are cached and reused for equal inputs."""

    max_bytes: Annotated[int, Field(ge=1, le=2**50)] = Field(
        default=64 * 2**20, description="Of all outputs that are kept, in each process."
    )


class ModelConfig(Section):
    """Whole file, except the tables of tasks, which ``config_type`` adds."""

    task: str = Field(default="tensor", description="What the model is for, by the name of a task.")
    labels: str | tuple[str, ...] | None = Field(
        default=None,
        description="Names of the classes: a list, or a UTF-8 file beside config.toml with one label a line.",
    )
    words: str | tuple[str, ...] | None = Field(
        default=None,
        description="Words that a recogniser may find: a list, or a file beside config.toml with one word a line.",
    )
    default: StrictBool = Field(
        default=False, description="Whether requests that name no model mean this one, where the settings say nothing."
    )
    versions: Annotated[VersionPolicy, BeforeValidator(_spelt_out)] = Field(
        default=VersionPolicy(), description="Versions to serve: latest, all, their numbers, or a table of its own."
    )
    tags: Annotated[dict[Tag, Version], Field(max_length=MAX_TAGS)] = Field(
        default={}, description="Names that requests may give in place of a version's number."
    )
    threads: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None, description="Cores one run may use; default, and at most, all that the server may use."
    )
    precision: Precision = Field(
        default="float32",
        description="Precision of products: float32; bf16 or auto round factors to bfloat16 where that is faster.",
    )
    strict: bool | None = Field(
        default=None,
        description="Refuse the model when it contradicts its file or shows a loss; default: the server's strict.",
    )
    batching: BatchingConfig = Field(default=BatchingConfig(), description="How requests share runs.")
    preprocess: PreprocessConfig | None = Field(
        default=None, description="How pictures become the input; default: as usual, if it looks like pictures."
    )
    text: TextConfig | None = Field(
        default=None, description="How texts become the inputs; default: as usual, if the task takes texts."
    )
    sound: SoundConfig | None = Field(
        default=None, description="How sounds become the inputs; default: as usual, if the task takes sounds."
    )
    states: Annotated[dict[str, str], Field(max_length=MAX_STATES)] = Field(
        default={},
        description="Outputs that are inputs of the next run: name of the output to name of the input.",
    )
    sequences: SequencesConfig = Field(
        default=SequencesConfig(), description="Limits of the sequences of a model with states."
    )
    response_cache: ResponseCacheConfig | None = Field(
        default=None, description="Keep outputs for inputs that come again; without the table nothing is kept."
    )

    @property
    def named_files(self) -> tuple[str, ...]:
        """Return the names of the files beside config.toml that it names."""
        return tuple(each for each in (self.labels, self.words) if isinstance(each, str))

    def is_strict(self, usual: bool) -> bool:
        """Return whether contradictions between graph and file forbid serving; ``usual`` is the server's setting."""
        return usual if self.strict is None else self.strict

    def table(self, task: type[Task[Any]]) -> Any:
        """Return the table of a task, or its defaults."""
        return getattr(self, field_name(task), None) or task.CONFIG()


def field_name(task: type[Task[Any]]) -> str:
    """Return the attribute of ``ModelConfig`` with a task's table."""
    return task.NAME.replace("-", "_")


def config_type() -> type[ModelConfig]:
    """Return the model of the whole file, with a table for every task that has keys."""
    return _with_tables(tuple(TASKS.values()))


@functools.cache
def _with_tables(tasks: tuple[type[Task[Any]], ...]) -> type[ModelConfig]:
    tables: dict[str, Any] = {
        field_name(task): (
            task.CONFIG,
            Field(default=task.CONFIG(), alias=task.NAME, description=f"For task {task.NAME}."),
        )
        for task in tasks
        if task.CONFIG.model_fields
    }
    return create_model("ModelConfig", __base__=ModelConfig, **tables)


def read_config(folder: Path, roots: Iterable[Path] = ()) -> ModelConfig:
    """Return the folder's config.toml, or the defaults if there is none.

    Args:
        folder: folder of the model.
        roots: folders that links may lead to; by default its own.

    Raises:
        ConfigError: the message names file and key, what was found and what was expected.
    """
    try:
        return config_type().model_validate(read_toml(check_links(folder / CONFIG, roots or (folder,))))
    except ConfigError as exc:
        raise ConfigError(f"{CONFIG}: {exc}") from None
    except ValidationError as exc:
        raise ConfigError(f"{CONFIG}: {'; '.join(_problems(exc))}") from None
    except RecursionError:
        raise ConfigError(f"{CONFIG}: nested too deeply") from None


def parse_config(text: str) -> ModelConfig:
    """Return a config sent as JSON: an object with the keys of the file.

    Raises:
        ConfigError: the message names the key, what was found and what was expected.
    """
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        raise ConfigError(f"config: not JSON: {safe_text(str(exc))}") from None
    try:
        return config_type().model_validate(document)
    except ValidationError as exc:
        raise ConfigError(f"config: {'; '.join(_problems(exc))}") from None
    except RecursionError:
        raise ConfigError("config: nested too deeply") from None


def _problems(exc: ValidationError) -> list[str]:
    return problems(exc, _keys(), free=("tags",))


def _keys() -> Set[str]:
    """Return the names of all tables and keys."""
    tables: list[type[Section]] = [
        config_type(),
        BatchingConfig,
        VersionPolicy,
        PreprocessConfig,
        TextConfig,
        SoundConfig,
        SequencesConfig,
        ResponseCacheConfig,
        *(task.CONFIG for task in TASKS.values()),
    ]
    return {field.alias or key for table in tables for key, field in table.model_fields.items()}
