"""Dense layers of sentence-transformers, appended with their pooling to the ONNX file of the transformer."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from exporter.errors import SourceError, describe

OUTPUT: Final = "sentence_embedding"
# Operators for the activations of sentence-transformers' Dense.
_ACTIVATIONS: Final = {"Tanh": "Tanh", "Identity": "", "ReLU": "Relu", "Sigmoid": "Sigmoid", "": ""}
_DTYPES: Final = {"F32": np.float32, "F16": np.float16, "F64": np.float64}
_MAX_HEADER: Final = 2**20
# In the operator sets below, the axes of these operators are attributes.
_AXES_ARE_INPUTS: Final = 13

Array = NDArray[Any]


def append_dense(model: Path, layers: Sequence[Path], pooling: str, path: Path) -> Path:
    """Write a transformer with pooling and dense layers as one ONNX file; return it, or the model if it has them.

    Args:
        model: ONNX file with token vectors (N, L, width) and an attention mask (N, L).
        layers: folders of dense layers, with config.json and weights.
        pooling: mean, cls or last.
        path: file to write.

    Raises:
        SourceError: the layers do not fit the model, or cannot be read.
    """
    import onnx

    loaded = onnx.load(str(model))
    graph = loaded.graph
    if OUTPUT in [each.name for each in graph.output]:
        return model
    versions = [each.version for each in loaded.opset_import if each.domain in ("", "ai.onnx")]
    added = _Appended(onnx, versions[0] if versions else 0)
    tokens = graph.output[0]
    vector = added.pool(tokens.name, _mask(graph), pooling)
    for index, layer in enumerate(layers):
        vector = added.dense(vector, layer, index)
    added.node("Identity", [vector], OUTPUT)
    graph.node.extend(added.nodes)
    graph.initializer.extend(added.weights)
    del graph.output[:]
    width = int(added.weights[-1].dims[-1])
    graph.output.append(onnx.helper.make_tensor_value_info(OUTPUT, onnx.TensorProto.FLOAT, ["texts", width]))
    onnx.save(loaded, str(path))
    return path


def _mask(graph: Any) -> str:
    names = [each.name for each in graph.input]
    if "attention_mask" not in names:
        raise SourceError("no mask to pool tokens by", found=", ".join(names), expected="an input 'attention_mask'")
    return "attention_mask"


class _Appended:
    """Operators and weights to append to a graph."""

    def __init__(self, onnx: Any, version: int) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._onnx, self._version = onnx, version

    def node(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Add an operator; return the name of its result."""
        name = output or f"sentence/{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def stored(self, name: str, value: Array) -> str:
        """Add a tensor; return its name."""
        self.weights.append(self._onnx.numpy_helper.from_array(np.array(value, order="C"), f"sentence/{name}"))
        return f"sentence/{name}"

    def pool(self, tokens: str, mask: str, pooling: str) -> str:
        """Add the pooling of tokens (N, L, width); return the vectors (N, width)."""
        if pooling != "mean":
            index = self.stored("index", np.array(0 if pooling == "cls" else -1))
            return self.node("Gather", [tokens, index], axis=1)
        weights = self.node("Cast", [mask], to=self._onnx.TensorProto.FLOAT)
        weights = self._along("Unsqueeze", weights, 2)
        total = self._along("ReduceSum", self.node("Mul", [tokens, weights]), 1, keepdims=0)
        return self.node("Div", [total, self._along("ReduceSum", weights, 1, keepdims=0)])

    def dense(self, vector: str, folder: Path, index: int) -> str:
        """Add a dense layer; return its result."""
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        activation = str(config.get("activation_function", "")).rpartition(".")[2]
        if activation not in _ACTIVATIONS:
            expected = ", ".join(filter(None, _ACTIVATIONS))
            raise SourceError("unknown activation", where=folder.name, found=activation, expected=expected)
        weights = _weights(folder)
        weight = self.stored(f"{index}.weight", weights["linear.weight"].astype(np.float32).T)
        bias = weights.get("linear.bias", np.zeros(weights["linear.weight"].shape[0]))
        result = self.node("MatMul", [vector, weight])
        result = self.node("Add", [result, self.stored(f"{index}.bias", bias.astype(np.float32))])
        return self.node(_ACTIVATIONS[activation], [result]) if _ACTIVATIONS[activation] else result

    def _along(self, kind: str, x: str, axis: int, **attributes: Any) -> str:
        if self._version < _AXES_ARE_INPUTS:
            return self.node(kind, [x], axes=[axis], **attributes)
        return self.node(kind, [x, self.stored(f"axis{len(self.nodes)}", np.array([axis]))], **attributes)


def _weights(folder: Path) -> dict[str, Array]:
    """Return the weights of a dense layer by name.

    Raises:
        SourceError: there are none, or they cannot be read.
    """
    try:
        if (folder / "model.safetensors").exists():
            found = _safetensors(folder / "model.safetensors")
        else:
            import torch

            state = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
            found = {name: value.float().numpy() for name, value in state.items()}
        if found["linear.weight"].ndim != 2:
            raise ValueError(f"weight of shape {found['linear.weight'].shape}")
    except Exception as exc:
        raise SourceError(
            "no weights of a dense layer", where=folder.name, found=describe(exc).partition("\n")[0],
            expected="model.safetensors or pytorch_model.bin with linear.weight",
        ) from exc  # fmt: skip
    return found


def _safetensors(path: Path) -> dict[str, Array]:
    """Return the tensors of a file: length of the header, header as JSON, values."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    if size > min(_MAX_HEADER, len(content)):
        raise ValueError(f"header of {size:,} bytes")
    header, values = json.loads(content[8 : 8 + size]), memoryview(content)[8 + size :]
    found = {}
    for name, each in header.items():
        if name == "__metadata__":
            continue
        begin, end = each["data_offsets"]
        dtype, shape = np.dtype(_DTYPES[each["dtype"]]), tuple(each["shape"])
        if end - begin != dtype.itemsize * math.prod(shape):
            raise ValueError(f"'{name}' of {end - begin} bytes")
        found[name] = np.frombuffer(values[begin:end], dtype).reshape(shape)
    return found
