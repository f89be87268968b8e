"""Layout of a store: names of its folders and files.

model_store/NAME/config.toml              every key optional, the file as well
model_store/NAME/VERSION/model.pnnx.param and model.pnnx.bin
model_store/NAME/VERSION/model.onnx       instead of a pair; model.onnx.data beside it, where its tensors lie apart
model_store/NAME/VERSION/warmup.npz       inputs to warm up with, by input name; may be left out
model_store/NAME/VERSION/tokenizer.json   tokenizer of a model that takes texts
model_store/NAME/VERSION/hooks.py         functions that convert requests and answers, see docs/hooks.md
model_store/NAME/VERSION/quantisation.json  report of pnnx-serve quantize, which the console shows
model_store/NAME.pnnx.param and .bin      short for NAME/1/ without a config
model_store/NAME/ANY.pnnx.param and .bin  a pair without a folder of its version is version 1, and so is model.onnx
model_store/NAME/pipeline.toml            NAME is a pipeline of models of the store, instead of the above
model_store/NAME/manifest.json            NAME/ is a bundle, with its pair and config; or NAME/VERSION/ is one
"""

from __future__ import annotations

import re
from typing import Final

MANIFEST: Final = "manifest.json"
CONFIG: Final = "config.toml"
PARAM: Final = "model.pnnx.param"
BIN: Final = "model.pnnx.bin"
ONNX: Final = "model.onnx"
QUANTISATION: Final = "quantisation.json"
WARMUP: Final = "warmup.npz"
ONNX_DATA: Final = ("model.onnx.data", "model.onnx_data")
"""Names of the file of external tensors: PyTorch's and Optimum's."""

FLAT_PARAM: Final = ".pnnx.param"
FLAT_BIN: Final = ".pnnx.bin"
NAME_RULE: Final = "letters, digits, '.', '_' and '-', a letter or digit first"
MAX_VERSION: Final = 999_999_999
TAG_RULE: Final = "letters, digits, '.', '_' and '-', a letter first, at most 64"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_TAG: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_VERSION: Final = re.compile(r"[1-9][0-9]{0,8}")


def is_model_name(name: str) -> bool:
    """Return whether a model may have this name (``NAME_RULE``)."""
    return _NAME.fullmatch(name) is not None


def is_tag(name: str) -> bool:
    """Return whether the name is a valid tag; it begins with a letter, unlike a version number."""
    return _TAG.fullmatch(name) is not None


def is_version(name: str) -> bool:
    """Return whether a folder's name is a version number."""
    return _VERSION.fullmatch(name) is not None
