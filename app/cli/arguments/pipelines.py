"""Pipelines on the command line: the models of their steps are loaded from the same store."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from app.cli.arguments.models import find, newest, prepare
from app.errors import ConfigError, ModelNotFoundError, VersionNotFoundError
from app.messages import did_you_mean, quoted
from app.models.folder.repository import ModelFiles, VersionFiles, scan
from app.models.model import Model
from app.models.servable import Servable
from app.models.sessions import read_graph
from app.pipelines.config import PipelineConfig
from app.pipelines.pipeline import Pipeline
from app.progress import compiling, progress
from app.settings import Settings


class LocalParts:
    """Models of a store, loaded when a step needs them.

    Args:
        store: folder of the store.
        settings: settings of the server.
    """

    def __init__(self, store: Path, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._loaded: dict[tuple[str, int], Servable] = {}

    @cached_property
    def _files(self) -> Mapping[str, ModelFiles]:
        return {files.name: files for files in scan(self._store)}

    def pipeline(self, name: str) -> PipelineConfig | None:
        """Return the file of a pipeline; None for other models and unknown names."""
        files = self._files.get(name)
        return None if files is None else files.pipeline

    def part(self, name: str, number: int | str | None) -> Servable:
        """Return a model of the store.

        Raises:
            ModelNotFoundError, VersionNotFoundError: the store does not have it.
            ConfigError, EngineError: it cannot be loaded.
        """
        files = self._files.get(name)
        if files is None:
            hint = did_you_mean(name, self._files)
            raise ModelNotFoundError(f"no model '{name}'{hint}: the store has {quoted(self._files)}")
        version = _version(files, number)
        key = name, version.number
        if key not in self._loaded:
            model = self._loaded[key] = self.open(files, version)
            if isinstance(model, Model):  # compile with progress shown, rather than silently within the run
                with compiling(files.name) as show:
                    model.compile(progress=show)
        return self._loaded[key]

    def open(self, files: ModelFiles, version: VersionFiles) -> Servable:
        """Return a model as the server would run it.

        Raises:
            ConfigError, EngineError: it cannot be loaded.
        """
        if files.pipeline is not None:
            return Pipeline(files.name, files.pipeline, self, self._settings)
        with progress(f"loading {files.name}"):
            return prepare(files, version, read_graph(version, self._settings), self._settings)


def load_any(name: str, settings: Settings) -> tuple[ModelFiles, Servable]:
    """Return a model or a pipeline as the server would run it, with its files.

    Raises:
        ModelNotFoundError, ConfigError, EngineError: there is no such model, or it cannot be loaded.
    """
    files = find(name, settings)
    return files, LocalParts(files.store or files.folder, settings).open(files, _version(files, None))


def _version(files: ModelFiles, number: int | str | None) -> VersionFiles:
    """Return a version by number or tag, by default the highest.

    Raises:
        VersionNotFoundError: there is none.
        ConfigError: the model's folder is invalid.
    """
    if number is None and files.pipeline is None:
        return newest(files)
    if files.problem is not None:
        raise ConfigError(f"model '{files.name}': {files.problem}")
    wanted = files.config.tags.get(number) if isinstance(number, str) else number
    for version in reversed(files.versions):
        if number is None or version.number == wanted:
            return version
    served = ", ".join(str(version.number) for version in files.versions)
    raise VersionNotFoundError(f"model '{files.name}' has no version {number}: it serves {served}")
