"""Reading of ``pipeline.toml``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from app.errors import ConfigError
from app.messages import safe_text
from app.models.folder.toml import check_links, problems, read_toml
from app.pipelines.config import PIPELINE, PipelineConfig, StepConfig, Turn

_STEP: Final = re.compile(r"^step\.(\d+)[.:] ?")
_MAX_NAME: Final = 64


def read_pipeline(folder: Path, roots: Iterable[Path]) -> PipelineConfig:
    """Return the folder's ``pipeline.toml``.

    Args:
        folder: folder of the model.
        roots: folders that links may lead to.

    Raises:
        ConfigError: the message names file and key, what was found and what was expected.
    """
    tables: dict[str, Any] = {}
    try:
        tables = read_toml(check_links(folder / PIPELINE, roots))
        return PipelineConfig.model_validate(tables)
    except ConfigError as exc:
        raise ConfigError(f"{PIPELINE}: {exc}") from None
    except ValidationError as exc:
        found = [_STEP.sub(partial(_named, tables), problem) for problem in problems(exc, _keys())]
        raise ConfigError(f"{PIPELINE}: {'; '.join(found)}") from None
    except RecursionError:
        raise ConfigError(f"{PIPELINE}: nested too deeply") from None


def _named(tables: dict[str, Any], match: re.Match[str]) -> str:
    """Return the name of a step in place of its number; counted from 1 if it has none."""
    number = int(match[1])
    name = tables["step"][number].get("name") if isinstance(tables["step"][number], dict) else None
    return f"step '{safe_text(name, _MAX_NAME)}': " if isinstance(name, str) else f"step {number + 1}: "


def _keys() -> set[str]:
    return {key for table in (PipelineConfig, StepConfig, Turn) for key in table.model_fields}
