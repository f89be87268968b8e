"""The folder of models, read without loading anything.

Whatever is wrong becomes the reason of that one model; the others are served.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import engine
from app.errors import ConfigError
from app.models.folder.config import MAX_VERSIONS, ModelConfig, read_config
from app.models.folder.labels import read_labels
from app.models.folder.layout import (
    BIN,
    FLAT_BIN,
    FLAT_PARAM,
    NAME_RULE,
    ONNX,
    ONNX_DATA,
    PARAM,
    is_model_name,
    is_version,
)
from app.wording import quoted, told

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFiles:
    """The files of one version; whether they are there is found out when it is loaded.

    Args:
        param, bin: a pair; or an ONNX model, and the file that its tensors mostly lie in where they lie apart.
        bundle: the folder that both are part of, where that is a bundle.
    """

    number: int
    param: Path
    bin: Path
    bundle: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A model as the folder has it: versions that are to be served, in ascending order.

    Args:
        is_pair: whether it is a pair that lies in the store itself, without a folder of its own.
    """

    name: str
    folder: Path
    config: ModelConfig = ModelConfig()
    labels: tuple[str, ...] | None = None
    versions: tuple[VersionFiles, ...] = ()
    problem: str | None = None
    is_pair: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
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


def scan(store: Path, only: str | None = None) -> list[ModelFiles]:
    """Every model of the folder, by name.

    Args:
        only: the folder is one model by itself, and is called so.

    Raises:
        ConfigError: the folder is missing or cannot be read; the name is none.
    """
    return [read_model(found) for found in find_models(store, only)]


def find_models(store: Path, only: str | None = None) -> list[FoundModel]:
    """What there is to read, by name.

    Args:
        only: the folder is one model by itself, and is called so.

    Raises:
        ConfigError: the folder is missing or cannot be read; the name is none.
    """
    try:
        paths = sorted(path for path in store.iterdir() if not path.name.startswith("."))
    except OSError as exc:
        raise ConfigError(f"the store '{told(store.name)}' cannot be read: {exc.strerror}") from None
    if only is not None:
        _check_name(only)
        return [FoundModel(name=only, path=store)]
    models: dict[str, FoundModel] = {}
    for found in filter(None, map(_found, paths)):
        problem = f"found both {found.name}/ and {found.name}{FLAT_PARAM}" if found.name in models else found.problem
        models[found.name] = replace(found, problem=problem)
    return [models[name] for name in sorted(models)]


def find_model(store: Path, name: str, only: str | None = None) -> FoundModel | None:
    """The model of a name; None where there is none, whatever else the name leads to.

    Args:
        only: the folder is one model by itself, and is called so.
    """
    if not is_model_name(name):
        return None
    if only is not None:
        return FoundModel(name=only, path=store) if name == only else None
    paths = [path for path in (store / name, store / f"{name}{FLAT_PARAM}") if os.path.lexists(path)]
    models = [found for found in map(_found, paths) if found is not None and found.name == name]
    problem = f"found both {name}/ and {name}{FLAT_PARAM}" if len(models) > 1 else None
    return replace(models[0], problem=problem or models[0].problem) if models else None


def _found(path: Path) -> FoundModel | None:
    """The model that a path of the store stands for; None for a file that is nobody's."""
    try:
        mode = os.stat(path).st_mode
    except OSError as exc:
        # A link that leads nowhere, or in a circle.
        return FoundModel(name=told(path.name), path=path, problem=exc.strerror or type(exc).__name__)
    if stat.S_ISDIR(mode):
        return FoundModel(name=told(path.name), path=path)
    if path.name.endswith(FLAT_PARAM):
        return FoundModel(name=told(path.name.removesuffix(FLAT_PARAM)), path=path, is_pair=True)
    return None


def read_model(found: FoundModel, config: ModelConfig | None = None) -> ModelFiles:
    """Everything about a model but the pairs themselves. Whatever goes wrong is its problem, and nobody else's.

    Args:
        config: what to take for that of its folder.
    """
    if found.problem is not None:
        return failed(found, found.problem)
    try:
        _check_name(found.name)
        return _read_flat(found, config) if found.is_pair else _read_folder(found, config)
    except ConfigError as exc:
        return failed(found, str(exc))
    except OSError as exc:
        return failed(found, f"cannot be read: {exc.strerror or type(exc).__name__}")
    except Exception:
        log.exception("model '%s'", found.name)
        return failed(found, "internal error while reading it; the server's log says more")


def failed(found: FoundModel, problem: str) -> ModelFiles:
    """The files of a model that cannot be served."""
    return ModelFiles(name=found.name, folder=found.path, problem=told(problem))


def _read_folder(found: FoundModel, config: ModelConfig | None) -> ModelFiles:
    config = read_config(found.path) if config is None else config
    labels = read_labels(found.path, config.labels)
    versions = tuple(_versions(found.path, config))
    return ModelFiles(name=found.name, folder=found.path, config=config, labels=labels, versions=versions)


def _read_flat(found: FoundModel, config: ModelConfig | None) -> ModelFiles:
    if config is not None:
        raise ConfigError("a pair without a folder of its own takes no config")
    param = found.path
    files = VersionFiles(number=1, param=param, bin=param.with_name(f"{found.name}{FLAT_BIN}"))
    return ModelFiles(name=found.name, folder=param.parent, versions=(files,), is_pair=True)


def _check_name(name: str) -> None:
    if not is_model_name(name):
        raise ConfigError(f"invalid model name, expected {NAME_RULE}")


def _versions(folder: Path, config: ModelConfig) -> Iterator[VersionFiles]:
    there = sorted(int(path.name) for path in folder.iterdir() if is_version(path.name) and path.is_dir())
    if not there and engine.is_bundle(folder):
        yield _version(1, folder)
        return
    if not there and (pairs := pairs_in(folder)):
        if len(pairs) > 1:
            raise ConfigError(f"found {len(pairs)} pairs, expected one: {quoted(pairs)}")
        (name,) = pairs
        yield VersionFiles(number=1, param=folder / f"{name}{FLAT_PARAM}", bin=folder / f"{name}{FLAT_BIN}")
        return
    if not there and (folder / ONNX).exists():
        yield _version(1, folder)
        return
    if not there:
        raise ConfigError(
            f"no version: expected a folder named by a number, such as {folder.name}/1/{PARAM}, or a pair"
        )
    chosen = _chosen(there, config)
    if len(chosen) > MAX_VERSIONS:
        raise ConfigError(f"versions: found {len(chosen)}, expected at most {MAX_VERSIONS}")
    for number in chosen:
        yield _version(number, folder / str(number))


def pairs_in(folder: Path) -> list[str]:
    """What the pairs of a folder are called, in order: the part of their names that both files of one have.

    Raises:
        OSError: it cannot be read.
    """
    found = (path.name for path in folder.iterdir() if not path.name.startswith("."))
    return sorted(name.removesuffix(FLAT_PARAM) for name in found if name.endswith(FLAT_PARAM))


def _version(number: int, folder: Path) -> VersionFiles:
    bundle = folder if engine.is_bundle(folder) else None
    if bundle is None and not (folder / PARAM).exists() and (folder / ONNX).exists():
        places = [folder / name for name in ONNX_DATA]
        return VersionFiles(number=number, param=folder / ONNX, bin=next(filter(Path.exists, places), places[0]))
    return VersionFiles(number=number, param=folder / PARAM, bin=folder / BIN, bundle=bundle)


def _chosen(there: list[int], config: ModelConfig) -> list[int]:
    policy = config.versions
    if policy.policy == "specific":
        return sorted(set(policy.specific))
    return there if policy.policy == "all" else there[-policy.latest :]
