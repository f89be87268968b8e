"""An ONNX file as messages: read, parsed without its large tensors, and checked to be a model."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from engine.errors import EngineError, ModelFormatError, UnsupportedOperatorError
from engine.memory.files import Path, file_name
from engine.onnx.reading.tensors import Weights
from engine.onnx.reading.wire import strip
from engine.pnnx.files import ONNX, kind_of_file, take_file

_EXTRA: Final = "pip install 'pnnx-serve[onnx]', or 'pnnx-serve export MODEL.onnx' where it is installed"
OLDEST: Final = 1
"""The first operator set; some operators of sets before 7 equal later ones, the others are refused one by one."""
_TOKEN_BYTES: Final = 24


@lru_cache(maxsize=1)
def library() -> Any:
    """Return the module ``onnx``.

    Raises:
        ModelFormatError: it is not installed; names the extra.
    """
    try:
        import onnx
        import onnx.defs
    except ImportError:
        raise ModelFormatError("ONNX files need the package 'onnx'", found="none", expected=_EXTRA) from None
    return onnx


@dataclass(frozen=True, slots=True)
class Model:
    """Content of a file.

    Args:
        proto: the ModelProto; its large tensors are in ``weights``.
        versions: domain -> version of its operator set.
    """

    name: str
    proto: Any
    weights: Weights
    versions: dict[str, int]


def read_model(path: Path) -> Model:
    """Read a file as it is now; later changes of the file have no effect.

    Raises:
        ModelFormatError: it does not exist, is not an ONNX model or damaged, or the package ``onnx`` is missing.
    """
    messages = library()
    name = file_name(path)
    data = take_file(path)
    kind = kind_of_file(bytes(data.data[:64]))
    if kind is not None and kind != ONNX:
        raise ModelFormatError("not an ONNX model", where=name, found=kind)
    try:
        skeleton = strip(data.data, secrets.token_bytes(_TOKEN_BYTES))
        proto = messages.ModelProto()
        try:
            proto.ParseFromString(skeleton.content)
        except Exception as exc:  # the class depends on how protobuf was built
            raise ModelFormatError("not an ONNX model, or a damaged one", found=str(exc)[:200]) from None
        if not proto.HasField("graph"):
            raise ModelFormatError("the file holds no model", found="no graph")
        weights = Weights(data, skeleton, os.path.dirname(os.path.realpath(path)))
        return Model(name, proto, weights, _versions(proto, messages))
    except EngineError as error:
        raise error.at(name) from None


def _versions(proto: Any, messages: Any) -> dict[str, int]:
    """Return the operator sets of a model.

    Raises:
        ModelFormatError: ONNX's own is missing, or its version is invalid.
        UnsupportedOperatorError: one is newer than the package knows.
    """
    versions: dict[str, int] = {}
    for each in proto.opset_import:
        domain = "" if each.domain == "ai.onnx" else each.domain
        if domain in versions and versions[domain] != each.version:
            found = f"{versions[domain]} and {each.version}"
            raise ModelFormatError(f"two operator sets of the domain '{domain}'", found=found, expected="one")
        versions[domain] = each.version
    own = versions.setdefault("", 1 if not versions else messages.defs.onnx_opset_version())
    newest = messages.defs.onnx_opset_version()
    if own < OLDEST:
        raise ModelFormatError("unknown operator set", found=own, expected=f"{OLDEST} to {newest}")
    if own > newest:
        expected = f"at most {newest}, which is what the installed package 'onnx' knows"
        raise UnsupportedOperatorError(f"the model's operator set is {own}, expected {expected}")
    return versions
