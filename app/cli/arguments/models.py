"""Lookup of MODEL: a name in the store, or the path of a .pnnx.param or .onnx file, a folder or a bundle."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import engine
from app.cli.arguments.options import UsageError
from app.errors import ConfigError, ModelNotFoundError
from app.location import Remote
from app.messages import did_you_mean, quoted
from app.models.folder.layout import QUANTISATION, is_version
from app.models.folder.repository import (
    FoundModel,
    ModelFiles,
    VersionFiles,
    find_models,
    read_model,
    scan,
    version_files,
)
from app.models.model import Model
from app.models.sessions import read_graph
from app.models.warmup import fits
from app.pipelines.config import PIPELINE
from app.progress import progress
from app.remote import fetched
from app.settings import Settings
from app.signature import describe
from app.thread_limits import thread_budget

_PARAM = ".param"
_ONNX = ".onnx"
_HEAD: Final = 64
_EXPORT: Final = "turn it into a pair with 'pnnx-serve export {} --shape ...'"


def find(model: str, settings: Settings) -> ModelFiles:
    """Return the files of a model. A pair given by its path has the default config and one version.

    A folder that is not a model of the store may hold one pair, or be a model of another store.

    Raises:
        ModelNotFoundError: the store has no such model, or the file does not exist.
        ConfigError: the store cannot be read.
    """
    if not model:
        raise ModelNotFoundError("no model is named, expected a .pnnx.param file or the name of a model in the store")
    if model.endswith((_PARAM, _ONNX)) or os.sep in model:
        return _at_path(Path(model))
    inside = _in_folder(Path(model))
    try:
        known = {files.name: files for files in scan(fetched(settings), settings.model_name)}
    except ConfigError:
        if inside is not None:
            return inside
        if suggestion := advice(Path(model)):
            raise ModelNotFoundError(suggestion) from None
        raise
    if model not in known:
        if inside is not None:
            return inside
        if suggestion := advice(Path(model)):
            raise ModelNotFoundError(suggestion)
        hint = did_you_mean(model, known)
        raise ModelNotFoundError(f"no model '{model}'{hint}: the store '{settings.store}' has {quoted(known)}")
    return known[model]


def all_names(settings: Settings) -> list[str]:
    """Return the names of all models of the store that have a graph.

    Raises:
        ConfigError: the store cannot be read, or is empty.
    """
    every = find_models(fetched(settings), settings.model_name)
    found = [each.name for each in every if not (each.path / PIPELINE).exists()]
    if not found:
        raise ConfigError(f"the store '{settings.store}' is empty: found no model")
    return found


def local_store(settings: Settings) -> Path:
    """Return the folder of the store, to write to it.

    Raises:
        UsageError: the store is remote.
    """
    if isinstance(settings.store, Remote):
        raise UsageError(f"the store {settings.store} is remote: expected --output, or --store with a folder")
    return settings.store


def newest(files: ModelFiles) -> VersionFiles:
    """Return the version that answers requests without a version.

    Raises:
        ConfigError: the model's config or folder is invalid, or it is a pipeline.
    """
    if files.problem is not None:
        raise ConfigError(f"model '{files.name}': {files.problem}")
    if files.pipeline is not None:
        models = quoted(files.pipeline.models)
        raise ConfigError(f"model '{files.name}' is a pipeline, which has no graph: expected one of {models}")
    return files.versions[-1]


def newest_original(files: ModelFiles) -> VersionFiles:
    """Return the newest version that ``quantize`` has not written, served or not; the newest if there is none.

    Raises:
        ConfigError: as for ``newest``.
    """
    version = newest(files)
    folders = [] if files.is_pair else [path for path in files.folder.iterdir() if is_version(path.name)]
    originals = [int(path.name) for path in folders if not (path / QUANTISATION).exists()]
    number = max((each for each in originals if each <= version.number), default=version.number)
    if number == version.number:
        return version
    return replace(version_files(number, files.folder / str(number)), roots=files.roots)


def load(
    name: str, settings: Settings, choose: Callable[[ModelFiles], VersionFiles] = newest
) -> tuple[ModelFiles, VersionFiles, Model]:
    """Return a model as the server would run it, in the chosen version, with its files; show that it is loading.

    Raises:
        ModelNotFoundError, ConfigError, EngineError: there is no such model, or it cannot be loaded.
    """
    found = find(name, settings)
    version = choose(found)
    with progress(f"loading {found.name}"):
        return found, version, prepare(found, version, read_graph(version, settings), settings)


def prepare(files: ModelFiles, version: VersionFiles, graph: engine.RuntimeGraph, settings: Settings) -> Model:
    """Return the model as the server would run it.

    Raises:
        ConfigError: the config does not fit the graph.
    """
    threads = thread_budget(settings.threads).threads
    given: Any = {"threads": threads, "settings": settings, "words": files.words, "files": version}
    return Model(files.name, graph, files.config, files.labels, **given)


def _in_folder(folder: Path) -> ModelFiles | None:
    """Return the bundle, the single pair or the model versions in a folder, or None."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return None
    if engine.is_bundle(folder):
        return read_model(FoundModel(name=folder.resolve().name, path=folder))
    if PIPELINE in names:
        return read_model(FoundModel(name=folder.resolve().name, path=folder, store=folder.resolve().parent))
    pairs = [name for name in names if name.endswith(_PARAM)] or [name for name in names if name.endswith(_ONNX)]
    if len(pairs) == 1:
        return _at_path(folder / pairs[0])
    if any(map(is_version, names)):
        return read_model(FoundModel(name=folder.resolve().name, path=folder))
    return None


def _at_path(param: Path) -> ModelFiles:
    if inside := _in_folder(param):
        return inside
    if param.name.endswith(_ONNX) and param.is_file():
        version = VersionFiles(number=1, param=param, bin=param.with_name(f"{param.name}.data"))
        return ModelFiles(name=str(param), folder=param.parent, versions=(version,), is_pair=True)
    if not param.name.endswith(_PARAM) or not param.is_file():
        if suggestion := advice(param):
            raise ModelNotFoundError(suggestion)
        raise ModelNotFoundError(f"no file '{param}', expected a .pnnx.param file or the name of a model in the store")
    version = VersionFiles(number=1, param=param, bin=param.with_name(f"{param.name.removesuffix(_PARAM)}.bin"))
    return ModelFiles(name=str(param), folder=param.parent, versions=(version,), is_pair=True)


def needed_specs(model: Model, shapes: Sequence[tuple[int, ...]]) -> list[engine.TensorSpec]:
    """Return the result of ``example_specs``.

    Raises:
        UsageError: as there, or graph and config leave a size dynamic.
    """
    if (specs := example_specs(model, shapes)) is None:
        raise UsageError("--shape: missing, expected a shape for the model's dynamic input sizes")
    return specs


def example_specs(model: Model, shapes: Sequence[tuple[int, ...]]) -> list[engine.TensorSpec] | None:
    """Return the input specs of a run in the model's order; without shapes, those given by the graph and the config.

    Returns:
        None if graph and config leave a size dynamic.

    Raises:
        UsageError: the number of shapes differs from that of the inputs, or a shape does not fit.
    """
    if not shapes:
        zeros = model.example_inputs()
        return None if zeros is None else [engine.TensorSpec(each.shape, each.dtype) for each in zeros.values()]
    ports = model.signature.inputs
    if len(shapes) != len(ports):
        names = quoted(port.name for port in ports)
        raise UsageError(f"--shape: found {len(shapes)}, expected one for each input: {names}")
    return [_spec(port, shape) for port, shape in zip(ports, shapes, strict=True)]


def _spec(port: engine.Port, shape: tuple[int, ...]) -> engine.TensorSpec:
    if port.spec is None:
        raise UsageError(f"--shape: the model does not state the dtype of '{port.name}'")
    if not fits(port, shape):
        raise UsageError(f"--shape: found {list(shape)}, which does not fit '{port.name}' ({describe(port)})")
    return engine.TensorSpec(shape, port.spec.dtype)


def advice(path: Path) -> str | None:
    """Return ``'net.onnx' is an ONNX model: turn it into a pair with ...``, or None if the path does not exist."""
    try:
        found = _folder(path) if path.is_dir() else _file(path) if path.is_file() else None
    except OSError:
        return None
    return found and f"'{path}' is {found}"


def _folder(path: Path) -> str:
    pairs = sorted(each.name for each in path.glob("*.param"))
    named = f", such as '{path / pairs[0]}'" if pairs else ""
    return f"a folder: name the .pnnx.param file in it{named}, or a model of the store"


def _file(path: Path) -> str:
    with path.open("rb") as file:
        kind = engine.kind_of_file(file.read(_HEAD))
    if kind == "an ONNX model":
        return "an ONNX model: its name has to end in .onnx"
    if zipfile.is_zipfile(path):
        return _archive(path)
    if kind == "the text of a pair":
        return "the text of a pair: its name has to end in .param"
    if kind == "a compressed file":
        return "a compressed file: unpack it first"
    return f"{kind or 'no model'}: a model is a pair, of which the .pnnx.param file is named"


def _archive(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if any("/code/" in name for name in names):
        return f"a TorchScript model: {_EXPORT.format(path)}"
    if any(name.endswith("/data.pkl") for name in names):
        return "a file of PyTorch's weights, without the model: export the Python file of the model"
    return "an archive of weights: name the .pnnx.param file beside it"
