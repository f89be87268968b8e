"""Reading of ``pipeline.toml``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from app.errors import ConfigError
from app.models.folder.toml import check_links, problems, read_toml
from app.pipelines.config import PIPELINE, PipelineConfig, StepConfig, Turn


def read_pipeline(folder: Path, roots: Iterable[Path]) -> PipelineConfig:
    """Return the folder's ``pipeline.toml``.

    Args:
        folder: folder of the model.
        roots: folders that links may lead to.

    Raises:
        ConfigError: the message names file and key, what was found and what was expected.
    """
    try:
        return PipelineConfig.model_validate(_numbered(read_toml(check_links(folder / PIPELINE, roots))))
    except ConfigError as exc:
        raise ConfigError(f"{PIPELINE}: {exc}") from None
    except ValidationError as exc:
        raise ConfigError(f"{PIPELINE}: {'; '.join(problems(exc, _keys()))}") from None
    except RecursionError:
        raise ConfigError(f"{PIPELINE}: nested too deeply") from None


def _numbered(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the tables; a single ``[step]`` counts as a list of one."""
    step = tables.get("step")
    return {**tables, "step": [step]} if isinstance(step, dict) else tables


def _keys() -> set[str]:
    return {key for table in (PipelineConfig, StepConfig, Turn) for key in table.model_fields}
