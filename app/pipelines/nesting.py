"""Models that a pipeline's steps name, and pipelines in pipelines."""

from __future__ import annotations

from typing import Final, Protocol

from app.errors import ConfigError
from app.models.servable import Servable
from app.pipelines.config import PIPELINE, PipelineConfig

# Pipelines within each other, at most.
MAX_DEPTH: Final = 4


class Parts(Protocol):
    """Models of a store, by name."""

    def part(self, name: str, number: int | str | None) -> Servable:
        """Return a served model by number or tag, by default its highest version.

        Raises:
            ServiceError: it is not served.
        """

    def pipeline(self, name: str) -> PipelineConfig | None:
        """Return the file of a pipeline; None for other models and unknown names."""


def check_nesting(name: str, config: PipelineConfig, parts: Parts) -> None:
    """Raise if a pipeline contains itself, or pipelines are nested too deeply.

    Raises:
        ConfigError: the message has the names of the pipelines.
    """
    _check((name,), config, parts)


def _check(path: tuple[str, ...], config: PipelineConfig, parts: Parts) -> None:
    for name in config.models:
        chain = " -> ".join(f"'{each}'" for each in (*path, name))
        if name in path:
            raise ConfigError(f"{PIPELINE}: found {chain}, expected no pipeline that contains itself")
        inner = parts.pipeline(name)
        if inner is not None:
            if len(path) >= MAX_DEPTH:
                raise ConfigError(f"{PIPELINE}: found {chain}, expected at most {MAX_DEPTH} pipelines in each other")
            _check((*path, name), inner, parts)
