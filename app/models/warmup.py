"""Example inputs of a model: ``warmup.npz`` in its folder, arrays by input name, or zeros."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from app.arrays import blank, dtype_name, is_text
from app.errors import ConfigError, InputMismatchError
from app.images.preprocess import Preprocessor
from app.messages import cut, quoted, safe_text
from app.models.folder.layout import WARMUP
from app.signature import Signature, describe

# Limit of unpacked bytes; larger inputs are not a warm-up.
MAX_BYTES: Final = 2**30


def read_warmup(path: Path | None, signature: Signature) -> dict[str, NDArray[Any]] | None:
    """Return the arrays of the file by input name, or None if there is no file.

    Raises:
        ConfigError: the message names file and array, what was found and what was expected.
    """
    if path is None or not os.path.lexists(path):
        return None
    try:
        return _matched(_arrays(path), signature)
    except InputMismatchError as exc:
        raise ConfigError(f"{WARMUP}: {exc}") from None
    except OSError as exc:
        raise ConfigError(f"{WARMUP}: cannot be read: {exc.strerror or type(exc).__name__}") from None
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError) as exc:
        raise ConfigError(
            f"{WARMUP}: cannot be read as an .npz file without pickles: {safe_text(str(exc), 200)}"
        ) from None


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > MAX_BYTES:
        raise ConfigError(f"{WARMUP}: found {unpacked} bytes unpacked, expected at most {MAX_BYTES}")
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _matched(arrays: dict[str, NDArray[Any]], signature: Signature) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    for name, port in signature.matched(arrays).items():
        found[port.name] = _fitting(arrays[name], port)
    missing = [name for name in signature.input_names if name not in found]
    if missing:
        raise ConfigError(f"{WARMUP}: no array for {quoted(missing)}, found {quoted(cut(name) for name in arrays)}")
    return {name: found[name] for name in signature.input_names}


def _fitting(array: NDArray[Any], port: engine.Port) -> NDArray[Any]:
    """Return an array in the dtype of its input, as far as numpy can store it.

    Raises:
        ConfigError: shape or dtype are not those of the input.
    """
    if port.spec is None:
        return array
    dtype = port.spec.dtype
    if is_text(dtype) and array.dtype.kind == "U":
        array = array.astype(dtype)
    elif array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:  # numpy's name for bfloat16
        array = array.view(dtype)
    if array.dtype != dtype or not fits(port, array.shape):
        found = f"{list(array.shape)} {dtype_name(array.dtype)}"
        raise ConfigError(f"{WARMUP}: input '{port.name}': found {found}, expected {describe(port)}")
    return array


def example_inputs(ports: Sequence[engine.Port], preprocessor: Preprocessor | None) -> dict[str, NDArray[Any]] | None:
    """Return zeros for every input, one item of a batch; None if graph and config leave a size dynamic."""
    zeros = {port.name: _zeros(port, preprocessor) for port in ports}
    known = {name: array for name, array in zeros.items() if array is not None}
    return known if len(known) == len(zeros) else None


def partly_known(
    ports: Sequence[engine.Port], specs: Sequence[engine.TensorSpec], preprocessor: Preprocessor | None
) -> list[engine.TensorSpec]:
    """Return the specs of the inputs with sizes from the config filled in."""
    return [
        engine.TensorSpec(tuple(_shape(port, spec, preprocessor)), spec.dtype)
        for port, spec in zip(ports, specs, strict=True)
    ]


def fits(port: engine.Port, shape: Sequence[int]) -> bool:
    """Return whether an input may have this shape; any batch size is allowed."""
    if port.spec is None or len(shape) != len(port.spec.shape):
        return False
    return all(known in (None, size) for known, size in zip(port.spec.shape[1:], shape[1:], strict=True))


def _zeros(port: engine.Port, preprocessor: Preprocessor | None) -> NDArray[Any] | None:
    if port.spec is None:
        return None
    shape = _shape(port, port.spec, preprocessor)
    if shape and shape[0] is None:
        shape[0] = 1
    known = [dim for dim in shape if dim is not None]
    return blank(known, port.spec.dtype) if len(known) == len(shape) else None


def _shape(port: engine.Port, spec: engine.TensorSpec, preprocessor: Preprocessor | None) -> list[int | None]:
    shape = list(spec.shape)
    size = None if preprocessor is None else preprocessor.example_size
    if preprocessor is not None and size is not None and port.name == preprocessor.port.name:
        shape[slice(2, 4) if preprocessor.config.layout == "nchw" else slice(1, 3)] = size
    return shape
