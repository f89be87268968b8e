"""The folder of models, read without loading anything.

    model_store/NAME/config.toml              every key optional, the file as well
    model_store/NAME/VERSION/model.pnnx.param and model.pnnx.bin
    model_store/NAME.pnnx.param and .bin      short for NAME/1/ without a config

Whatever is wrong becomes the reason of that one model; the others are served.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.config import ModelConfig, read_config
from app.errors import ConfigError
from app.labels import read_labels

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


def scan(store: Path) -> list[ModelFiles]:
    """Every model of the folder, by name.

    Raises:
        ConfigError: the folder is missing or cannot be read.
    """
    try:
        entries = sorted(entry for entry in store.iterdir() if not entry.name.startswith("."))
    except OSError as exc:
        raise ConfigError(f"the store '{store.name}' cannot be read: {exc.strerror}") from None
    folders = [entry for entry in entries if entry.is_dir()]
    pairs = [entry for entry in entries if entry.name.endswith(FLAT) and entry.is_file()]
    models = {folder.name: _read_folder(folder) for folder in folders}
    for pair in pairs:
        model = _read_flat(pair)
        if model.name in models:
            model = ModelFiles(name=model.name, folder=store, problem=f"found both {model.name}/ and {pair.name}")
        models[model.name] = model
    return [models[name] for name in sorted(models)]


def _read_folder(folder: Path) -> ModelFiles:
    try:
        _check_name(folder.name)
        config = read_config(folder)
        labels = read_labels(folder, config.labels)
        versions = tuple(_versions(folder, config))
    except ConfigError as exc:
        return ModelFiles(name=folder.name, folder=folder, problem=str(exc))
    return ModelFiles(name=folder.name, folder=folder, config=config, labels=labels, versions=versions)


def _read_flat(param: Path) -> ModelFiles:
    name = param.name.removesuffix(FLAT)
    try:
        _check_name(name)
    except ConfigError as exc:
        return ModelFiles(name=name, folder=param.parent, problem=str(exc))
    files = VersionFiles(number=1, param=param, bin=param.with_name(f"{name}.pnnx.bin"))
    return ModelFiles(name=name, folder=param.parent, versions=(files,))


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError("invalid model name, expected letters, digits, '.', '_' and '-', a letter or digit first")


def _versions(folder: Path, config: ModelConfig) -> Iterator[VersionFiles]:
    there = sorted(int(entry.name) for entry in folder.iterdir() if entry.is_dir() and _VERSION.fullmatch(entry.name))
    if not there:
        raise ConfigError(f"no version: expected a folder named by a number, such as {folder.name}/1/{PARAM}")
    for number in _chosen(there, config):
        inside = folder / str(number)
        yield VersionFiles(number=number, param=inside / PARAM, bin=inside / BIN)


def _chosen(there: list[int], config: ModelConfig) -> list[int]:
    if isinstance(config.versions, tuple):
        return sorted(set(config.versions))
    return there if config.versions == "all" else there[-1:]
