"""The folder of models, read without loading anything.

    model_store/NAME/config.toml              every key optional, the file as well
    model_store/NAME/VERSION/model.pnnx.param and model.pnnx.bin
    model_store/NAME.pnnx.param and .bin      short for NAME/1/ without a config

Whatever is wrong becomes the reason of that one model; the others are served.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from app.errors import ConfigError
from app.models.config import MAX_VERSIONS, ModelConfig, read_config
from app.models.labels import read_labels
from app.wording import told

log = logging.getLogger(__name__)

PARAM: Final = "model.pnnx.param"
BIN: Final = "model.pnnx.bin"
FLAT: Final = ".pnnx.param"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_VERSION: Final = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFiles:
    """The file pair of one version; whether it is there is found out when it is loaded."""

    number: int
    param: Path
    bin: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A model as the folder has it: versions that are to be served, in ascending order."""

    name: str
    folder: Path
    config: ModelConfig = ModelConfig()
    labels: tuple[str, ...] | None = None
    versions: tuple[VersionFiles, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A model that the folder seems to have; nothing of it is read yet.

    Args:
        name: as answers and logs give it.
        path: of its folder, or of the ``.param`` file of a pair.
        problem: what is wrong with it already.
    """

    name: str
    path: Path
    is_pair: bool = False
    problem: str | None = None


def scan(store: Path) -> list[ModelFiles]:
    """Every model of the folder, by name.

    Raises:
        ConfigError: the folder is missing or cannot be read.
    """
    return [read_model(source) for source in find_models(store)]


def find_models(store: Path) -> list[Source]:
    """What there is to read, by name.

    Raises:
        ConfigError: the folder is missing or cannot be read.
    """
    try:
        paths = sorted(path for path in store.iterdir() if not path.name.startswith("."))
    except OSError as exc:
        raise ConfigError(f"the store '{told(store.name)}' cannot be read: {exc.strerror}") from None
    sources: dict[str, Source] = {}
    for source in filter(None, map(_source, paths)):
        problem = f"found both {source.name}/ and {source.name}{FLAT}" if source.name in sources else source.problem
        sources[source.name] = replace(source, problem=problem)
    return [sources[name] for name in sorted(sources)]


def _source(path: Path) -> Source | None:
    """The model that a path of the store stands for; None for a file that is nobody's."""
    try:
        mode = os.stat(path).st_mode
    except OSError as exc:
        # A link that leads nowhere, or in a circle.
        return Source(name=told(path.name), path=path, problem=exc.strerror or type(exc).__name__)
    if stat.S_ISDIR(mode):
        return Source(name=told(path.name), path=path)
    if path.name.endswith(FLAT):
        return Source(name=told(path.name.removesuffix(FLAT)), path=path, is_pair=True)
    return None


def read_model(source: Source) -> ModelFiles:
    """Everything about a model but the pairs themselves. Whatever goes wrong is its problem, and nobody else's."""
    if source.problem is not None:
        return failed(source, source.problem)
    try:
        _check_name(source.name)
        return _read_flat(source) if source.is_pair else _read_folder(source)
    except ConfigError as exc:
        return failed(source, str(exc))
    except OSError as exc:
        return failed(source, f"cannot be read: {exc.strerror or type(exc).__name__}")
    except Exception:
        log.exception("model '%s'", source.name)
        return failed(source, "internal error while reading it; the server's log says more")


def failed(source: Source, problem: str) -> ModelFiles:
    """The files of a model that cannot be served."""
    return ModelFiles(name=source.name, folder=source.path, problem=told(problem))


def _read_folder(source: Source) -> ModelFiles:
    config = read_config(source.path)
    labels = read_labels(source.path, config.labels)
    versions = tuple(_versions(source.path, config))
    return ModelFiles(name=source.name, folder=source.path, config=config, labels=labels, versions=versions)


def _read_flat(source: Source) -> ModelFiles:
    param = source.path
    files = VersionFiles(number=1, param=param, bin=param.with_name(f"{source.name}.pnnx.bin"))
    return ModelFiles(name=source.name, folder=param.parent, versions=(files,))


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError("invalid model name, expected letters, digits, '.', '_' and '-', a letter or digit first")


def _versions(folder: Path, config: ModelConfig) -> Iterator[VersionFiles]:
    there = sorted(int(path.name) for path in folder.iterdir() if _VERSION.fullmatch(path.name) and path.is_dir())
    if not there:
        raise ConfigError(f"no version: expected a folder named by a number, such as {folder.name}/1/{PARAM}")
    chosen = _chosen(there, config)
    if len(chosen) > MAX_VERSIONS:
        raise ConfigError(f"versions: found {len(chosen)}, expected at most {MAX_VERSIONS}")
    for number in chosen:
        inside = folder / str(number)
        yield VersionFiles(number=number, param=inside / PARAM, bin=inside / BIN)


def _chosen(there: list[int], config: ModelConfig) -> list[int]:
    if isinstance(config.versions, tuple):
        return sorted(set(config.versions))
    return there if config.versions == "all" else there[-1:]
