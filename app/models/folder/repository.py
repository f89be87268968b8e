"""Scan of a store's folder, without loading models.

A problem affects only its own model; the others are served.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import engine
from app.errors import ConfigError
from app.hooks import HOOKS
from app.messages import quoted, safe_text
from app.models.folder.config import MAX_VERSIONS, ModelConfig, read_config
from app.models.folder.layout import (
    BIN,
    CONFIG,
    FLAT_BIN,
    FLAT_PARAM,
    NAME_RULE,
    ONNX,
    ONNX_DATA,
    PARAM,
    WARMUP,
    is_model_name,
    is_version,
)
from app.models.folder.pipeline_file import read_pipeline
from app.models.folder.toml import check_links
from app.models.folder.vocabulary import read_vocabulary
from app.pipelines.config import PIPELINE, TASK, PipelineConfig
from app.text.text import TOKENIZER
from app.text_files import read_text

log = logging.getLogger(__name__)
MAX_BYTES: Final = 8 * 2**20
MAX_LABELS: Final = 2**18
_MAX_NAME: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFiles:
    """Files of one version; their presence is checked when it is loaded.

    Args:
        number: number of the version.
        param, bin: a pair; or an ONNX model and the file with its external tensors, if any.
        bundle: folder of both, if it is a bundle.
        warmup: inputs for the warm-up; None if the version has no folder of its own.
        tokenizer, hooks: files of the tokenizer and the hooks, where they would be; likewise.
        roots: folders that links may lead to; empty for files given by path.
    """

    number: int
    param: Path
    bin: Path
    bundle: Path | None = None
    warmup: Path | None = None
    tokenizer: Path | None = None
    hooks: Path | None = None
    roots: tuple[Path, ...] = ()

    @property
    def beside(self) -> list[Path]:
        """Return the files besides the network that requests need."""
        return [path for path in (self.warmup, self.tokenizer, self.hooks) if path is not None and path.exists()]

    def check_links(self) -> None:
        """Raise if a link leads out of the roots.

        Raises:
            ConfigError: it does.
        """
        for path in (self.param, self.bin, self.bundle, self.warmup, self.tokenizer, self.hooks):
            if path is not None and self.roots:
                check_links(path, self.roots)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """Files of a model, with the versions to serve in ascending order.

    Args:
        is_pair: whether it is a pair directly in the store, without a folder of its own.
        pipeline: steps of a pipeline; None for a network.
        store: folder that links may lead to besides its own, or None.
    """

    name: str
    folder: Path
    store: Path | None = None
    config: ModelConfig = ModelConfig()
    labels: tuple[str, ...] | None = None
    words: tuple[str, ...] | None = None
    versions: tuple[VersionFiles, ...] = ()
    problem: str | None = None
    is_pair: bool = False
    pipeline: PipelineConfig | None = None

    @property
    def roots(self) -> tuple[Path, ...]:
        """Return the folders that links may lead to."""
        return _roots(self.folder, self.store)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """Model found in the folder, not yet read.

    Args:
        name: public name.
        path: its folder, or the ``.param`` file of a pair.
        problem: problem found so far.
        store: folder of models that contains it; None for a single model.
    """

    name: str
    path: Path
    store: Path | None = None
    is_pair: bool = False
    problem: str | None = None


def scan(store: Path, only: str | None = None) -> list[ModelFiles]:
    """Return all models of the folder by name.

    Args:
        store: folder of the models.
        only: name, if the folder is a single model.

    Raises:
        ConfigError: the folder is missing or unreadable, or the name is invalid.
    """
    return [read_model(found) for found in find_models(store, only)]


def find_models(store: Path, only: str | None = None) -> list[FoundModel]:
    """Return the models to read, by name.

    Args:
        store: folder of the models.
        only: name, if the folder is a single model.

    Raises:
        ConfigError: the folder is missing or unreadable, or the name is invalid.
    """
    try:
        paths = sorted(path for path in store.iterdir() if not path.name.startswith("."))
    except OSError as exc:
        raise ConfigError(f"the store '{safe_text(store.name)}' cannot be read: {exc.strerror}") from None
    if only is not None:
        _check_name(only)
        return [FoundModel(name=only, path=store)]
    models: dict[str, FoundModel] = {}
    for found in filter(None, map(_found, paths)):
        problem = f"found both {found.name}/ and {found.name}{FLAT_PARAM}" if found.name in models else found.problem
        models[found.name] = replace(found, problem=problem)
    return [models[name] for name in sorted(models)]


def find_model(store: Path, name: str, only: str | None = None) -> FoundModel | None:
    """Return the model of a name, or None; invalid names are never looked up.

    Args:
        store: folder of the models.
        name: name of the model.
        only: name, if the folder is a single model.
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
    """Return the model at a path of the store; None for unrelated files."""
    try:
        mode = os.stat(path).st_mode
    except OSError as exc:
        # A dangling or circular link.
        return FoundModel(name=safe_text(path.name), path=path, problem=exc.strerror or type(exc).__name__)
    if stat.S_ISDIR(mode):
        return FoundModel(name=safe_text(path.name), path=path, store=path.parent)
    if path.name.endswith(FLAT_PARAM):
        name = safe_text(path.name.removesuffix(FLAT_PARAM))
        return FoundModel(name=name, path=path, store=path.parent, is_pair=True)
    return None


def read_model(found: FoundModel, config: ModelConfig | None = None) -> ModelFiles:
    """Read everything about a model except the pairs; any error becomes its problem.

    Args:
        found: model to read.
        config: config that replaces that of its folder.
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
    """Return the files of a model that cannot be served."""
    return ModelFiles(name=found.name, folder=found.path, store=found.store, problem=safe_text(problem))


def _read_folder(found: FoundModel, config: ModelConfig | None) -> ModelFiles:
    roots = _roots(found.path, found.store)
    if os.path.lexists(found.path / PIPELINE):
        return _read_pipeline(found, config, roots)
    config = read_config(found.path, roots) if config is None else config
    labels = read_labels(found.path, config.labels, roots)
    words = read_labels(found.path, config.words, roots, "words")
    versions = tuple(replace(version, roots=roots) for version in _versions(found.path, config))
    return ModelFiles(
        name=found.name,
        folder=found.path,
        store=found.store,
        config=config,
        labels=labels,
        words=words,
        versions=versions,
    )


def _read_pipeline(found: FoundModel, config: ModelConfig | None, roots: tuple[Path, ...]) -> ModelFiles:
    if config is not None:
        raise ConfigError("a pipeline takes no config")
    others = sorted(path.name for path in found.path.iterdir() if path.name == CONFIG or is_version(path.name))
    if others:
        raise ConfigError(f"found both {PIPELINE} and {quoted(others)}, expected {PIPELINE} without a model")
    pipeline, path = read_pipeline(found.path, roots), found.path / PIPELINE
    return ModelFiles(
        name=found.name,
        folder=found.path,
        store=found.store,
        config=ModelConfig(task=TASK, default=pipeline.default),
        versions=(VersionFiles(number=1, param=path, bin=path, roots=roots),),
        pipeline=pipeline,
    )


def _roots(folder: Path, store: Path | None) -> tuple[Path, ...]:
    return (folder,) if store is None else (folder, store)


def _read_flat(found: FoundModel, config: ModelConfig | None) -> ModelFiles:
    if config is not None:
        raise ConfigError("a pair without a folder of its own takes no config")
    param = found.path
    roots = _roots(param.parent, found.store)
    files = VersionFiles(number=1, param=param, bin=param.with_name(f"{found.name}{FLAT_BIN}"), roots=roots)
    return ModelFiles(name=found.name, folder=param.parent, store=found.store, versions=(files,), is_pair=True)


def _check_name(name: str) -> None:
    if not is_model_name(name):
        raise ConfigError(f"invalid model name, expected {NAME_RULE}")


def _versions(folder: Path, config: ModelConfig) -> Iterator[VersionFiles]:
    numbers = sorted(int(path.name) for path in folder.iterdir() if is_version(path.name) and path.is_dir())
    if not numbers and engine.is_bundle(folder):
        yield version_files(1, folder)
        return
    if not numbers and (pairs := pairs_in(folder)):
        if len(pairs) > 1:
            raise ConfigError(f"found {len(pairs)} pairs, expected one: {quoted(pairs)}")
        (name,) = pairs
        yield VersionFiles(
            number=1,
            param=folder / f"{name}{FLAT_PARAM}",
            bin=folder / f"{name}{FLAT_BIN}",
            warmup=folder / WARMUP,
            tokenizer=folder / TOKENIZER,
            hooks=folder / HOOKS,
        )
        return
    if not numbers and (folder / ONNX).exists():
        yield version_files(1, folder)
        return
    if not numbers:
        found = "waiting for files" if not any(folder.iterdir()) else "no version"
        raise ConfigError(
            f"{found}: expected a folder named by a number, such as {folder.name}/1/{PARAM}, or a pair, or {ONNX}"
        )
    chosen = _chosen(numbers, config)
    if len(chosen) > MAX_VERSIONS:
        raise ConfigError(f"versions: found {len(chosen)}, expected at most {MAX_VERSIONS}")
    for number in chosen:
        yield version_files(number, folder / str(number))


def pairs_in(folder: Path) -> list[str]:
    """Return the names of the pairs in a folder, without endings, sorted.

    Raises:
        OSError: the folder cannot be read.
    """
    found = (path.name for path in folder.iterdir() if not path.name.startswith("."))
    return sorted(name.removesuffix(FLAT_PARAM) for name in found if name.endswith(FLAT_PARAM))


def version_files(number: int, folder: Path) -> VersionFiles:
    """Return the files of a version in a folder of its own."""
    bundle = folder if engine.is_bundle(folder) else None
    beside: dict[str, Any] = {"warmup": folder / WARMUP, "tokenizer": folder / TOKENIZER, "hooks": folder / HOOKS}
    if bundle is None and not (folder / PARAM).exists() and (folder / ONNX).exists():
        places = [folder / name for name in ONNX_DATA]
        place = next(filter(Path.exists, places), places[0])
        return VersionFiles(number=number, param=folder / ONNX, bin=place, **beside)
    return VersionFiles(number=number, param=folder / PARAM, bin=folder / BIN, bundle=bundle, **beside)


def waits_for_files(version: VersionFiles) -> str | None:
    """Return what a version's folder has and lacks if no model file has arrived yet, else None."""
    if version.bundle is not None or version.param.exists() or version.bin.exists():
        return None
    folder = version.param.parent
    try:
        found = sorted(path.name for path in folder.iterdir())
    except OSError:
        return None
    return f"waiting for files: found {quoted(found)} in {folder.name}/, expected {PARAM} and {BIN}, or {ONNX}"


def _chosen(numbers: list[int], config: ModelConfig) -> list[int]:
    policy = config.versions
    if policy.policy == "specific":
        return sorted(set(policy.specific))
    return numbers if policy.policy == "all" else numbers[-policy.latest :]


def read_labels(
    folder: Path, labels: str | tuple[str, ...] | None, roots: Iterable[Path] = (), key: str = "labels"
) -> tuple[str, ...] | None:
    """Return the labels of the classes, from the config or from a file; see ``read_vocabulary`` for its forms.

    Args:
        folder: folder of the model.
        labels: labels or name of the file.
        roots: folders that links may lead to; by default its own.
        key: key of the config that names the file.

    Raises:
        ConfigError: the file is missing, unreadable, empty, or not beside config.toml.
    """
    if not isinstance(labels, str):
        return labels
    name = safe_text(labels, _MAX_NAME)
    path = folder / labels
    if path.name != labels or labels == os.pardir:
        raise ConfigError(f"{CONFIG}: {key}: found '{name}', expected the name of a file beside {CONFIG}")
    try:
        # splitlines() would also split at form feeds and the like.
        text = read_text(check_links(path, roots or (folder,)), MAX_BYTES, encoding="utf-8-sig").rstrip(" \t\n")
    except ConfigError as exc:
        raise ConfigError(f"{CONFIG}: {key}: cannot read '{name}': {exc}") from None
    if not text:
        raise ConfigError(f"{CONFIG}: {key}: '{name}' is empty")
    if text.count("\n") >= MAX_LABELS:
        raise ConfigError(f"{CONFIG}: {key}: found more than {MAX_LABELS:,} lines in '{name}'")
    try:
        return read_vocabulary(text, labels)
    except ValueError as exc:
        raise ConfigError(f"{CONFIG}: {key}: '{name}': {exc}") from None
