"""Source of a model: a Python file or module and a name in it, a TorchScript file or an ONNX file.

model.py:Net          a class, called without arguments
model.py:make_net     a function, called without arguments
model.py:net          an existing module
model.py              the only model in it
package.module:Net    the same, for installed packages
model.pt              a file written by torch.jit.save
model.onnx            an ONNX file, compared with onnxruntime
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import re
import sys
import warnings
import zipfile
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import engine
from exporter.errors import SourceError, describe
from exporter.onnx_files import OnnxModel


def load_source(text: str) -> Any:
    """Return the torch.nn.Module that a text names, in evaluation mode, on the CPU.

    Importing a Python file runs it, and its folder joins ``sys.path``, as for ``python model.py``. Loading a
    TorchScript file runs nothing.

    Raises:
        SourceError: unknown file or name, the import or the call fails, or the result is not a module.
    """
    if not text:
        raise SourceError("the source is empty", expected="FILE.py:NAME, a TorchScript file or FILE.onnx")
    name, colon, attribute = text.rpartition(":")
    place, attribute = (name, attribute) if colon else (text, "")
    if place.endswith(".py"):
        model = _pick(_import_file(Path(place)), attribute)
    elif place.endswith(".onnx"):
        if colon:
            raise SourceError("an ONNX file holds one model", where=Path(place).name, found=f"'{attribute}'")
        model = _load_onnx(Path(text))
    elif colon:
        model = _pick(_import_module(place), attribute)
    else:
        model = _load_script(Path(place))
    return model.eval().cpu()


def load_weights(model: Any, path: Path) -> None:
    """Give a model the weights of a file written by torch.save; nothing in the file runs.

    Raises:
        SourceError: it holds no weights, or those of another model.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as exc:
        raise SourceError("no weights of PyTorch", where=path.name, found=describe(exc).partition("\n")[0]) from exc
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    try:
        model.load_state_dict(state)
    except Exception as exc:
        found = " ".join(describe(exc).split())
        raise SourceError("the weights are those of another model", where=path.name, found=found[:300]) from exc


def _import_file(path: Path) -> ModuleType:
    _check_exists(path)
    path = path.resolve()
    # The name of a class in the graph includes its module: Net of model.py is model.Net.
    names = (f"{stem}{number or ''}" for stem in [re.sub(r"\W", "_", path.stem)] for number in itertools.count())
    name = next(name for name in names if name not in sys.modules or _is_from(sys.modules[name], path))
    if name not in sys.modules:
        sys.path.insert(0, str(path.parent))
        _execute(name, path)
    return sys.modules[name]


def _is_from(module: ModuleType, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve() == path


def _execute(name: str, path: Path) -> None:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SourceError("not a Python file", where=path.name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as exc:
        del sys.modules[name]
        raise SourceError("importing it failed", where=path.name, found=describe(exc)) from exc


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as exc:
        raise SourceError("importing it failed", where=name, found=describe(exc)) from exc


def _pick(module: ModuleType, attribute: str) -> Any:
    where = getattr(module, "__file__", None)
    place = Path(where).name if where else module.__name__
    name = attribute or _only_model(module, place)
    if not hasattr(module, name):
        near = get_close_matches(name, dir(module), n=1) or _models(module)
        expected = f"a name in it, such as {near[0]}" if near else "a name in it"
        raise SourceError("unknown name", where=place, found=f"'{name}'", expected=expected)
    return _made(getattr(module, name), f"{place}:{name}")


def _only_model(module: ModuleType, place: str) -> str:
    names = _models(module)
    if len(names) != 1:
        found = ", ".join(names) or "none"
        raise SourceError("several models or none", where=place, found=found, expected=f"{place}:NAME to say which")
    return names[0]


def _models(module: ModuleType) -> list[str]:
    """Return the names of existing modules, or else of the classes that the file itself defines."""
    values = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    instances = [name for name, value in values.items() if isinstance(value, torch.nn.Module)]
    return instances or [
        name
        for name, value in values.items()
        if isinstance(value, type) and issubclass(value, torch.nn.Module) and value.__module__ == module.__name__
    ]


def _made(value: Any, where: str) -> Any:
    if not isinstance(value, torch.nn.Module):
        if not callable(value):
            raise SourceError(
                "it is neither a model nor a function or class that returns one",
                where=where,
                found=type(value).__name__,
            )
        try:
            value = value()
        except Exception as exc:
            raise SourceError("calling it without arguments failed", where=where, found=describe(exc)) from exc
    if not isinstance(value, torch.nn.Module):
        raise SourceError("the result is not a model", where=where, found=type(value).__name__, expected="an nn.Module")
    return value


def _load_script(path: Path) -> Any:
    _check_exists(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is deprecated, but the converter reads nothing else
            return torch.jit.load(str(path), map_location="cpu")
    except Exception as exc:
        if (kind := _kind(path)) == "an ONNX model":
            expected = f"its name to end in .onnx: {path.stem}.onnx"
            raise SourceError("an ONNX model under another name", where=path.name, expected=expected) from exc
        if _is_checkpoint(path):
            expected = "the Python file of the model instead, or a file written by torch.jit.save"
            raise SourceError("weights without a model", where=path.name, expected=expected) from exc
        expected = "a file written by torch.jit.save, or FILE.py:NAME"
        found = describe(exc).partition(".")[0] if zipfile.is_zipfile(path) else kind or "no archive"
        raise SourceError("not a TorchScript file", where=path.name, found=found, expected=expected) from exc


def _kind(path: Path) -> str | None:
    with path.open("rb") as file:
        return engine.kind_of_file(file.read(64))


def _load_onnx(path: Path) -> Any:
    _check_exists(path)
    if (kind := _kind(path)) not in (None, "an ONNX model"):
        raise SourceError("not an ONNX model", where=path.name, found=kind)
    return OnnxModel(path)


def _is_checkpoint(path: Path) -> bool:
    """Return whether torch.save wrote the file: an archive with a pickle and without code."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    return any(name.endswith("/data.pkl") for name in names) and not any("/code/" in name for name in names)


def _check_exists(path: Path) -> None:
    if not path.is_file():
        if path.is_dir():
            raise SourceError("the source is a folder", where=str(path), expected="a file in it")
        raise SourceError("no such file", where=str(path))
