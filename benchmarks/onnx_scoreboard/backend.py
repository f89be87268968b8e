"""Backend for ONNX's public scoreboard: ``prepare`` and ``run_model`` as in ``onnx.backend.base``."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnx import ModelProto, NodeProto, TypeProto
from onnx.backend.base import Backend, BackendRep
from onnx.helper import make_graph, make_model, make_tensor_value_info, np_dtype_to_tensor_dtype

import engine


class PreparedModel(BackendRep):
    """Model that is loaded and compiled."""

    def __init__(self, model: ModelProto) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(model.SerializeToString())
            graph = engine.load(path)
        self._session = engine.Session(graph, threads=1, cache=None)
        self._operands = [port.operand for port in graph.outputs]
        self._are_lists = [_is_list(output.type) for output in model.graph.output]

    def run(self, inputs: Sequence[Any], **options: Any) -> tuple[Any, ...]:
        """Return the outputs; a session lists the items of a sequence one by one."""
        if self._are_lists.count(True) > 1:  # of unknown lengths: a tap gives the items of a sequence together
            taps = self._session.run(list(inputs), taps=self._operands).taps
            return tuple(taps[name] for name in self._operands)
        found = self._session.run(list(inputs))
        if True not in self._are_lists:
            return tuple(found)
        first = self._are_lists.index(True)
        last = len(found) - (len(self._are_lists) - 1 - first)
        return (*found[:first], found[first:last], *found[last:])


def _is_list(type: TypeProto) -> bool:
    """Return whether a value is a sequence, or an optional one."""
    kind = type.WhichOneof("value")
    return _is_list(type.optional_type.elem_type) if kind == "optional_type" else kind == "sequence_type"


class EngineBackend(Backend):
    """The engine as a backend of ONNX."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **options: Any) -> PreparedModel:
        """Check, load and compile a model."""
        super().prepare(model, device, **options)
        return PreparedModel(model)

    @classmethod
    def run_model(
        cls, model: ModelProto, inputs: Sequence[Any], device: str = "CPU", **options: Any
    ) -> tuple[Any, ...]:
        """Run a model once."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Sequence[Any], device: str = "CPU", outputs_info: Any = None, **options: Any
    ) -> tuple[Any, ...]:
        """Run a single operator."""
        names = [name for name in node.input if name]
        given = [
            make_tensor_value_info(name, np_dtype_to_tensor_dtype(each.dtype), each.shape)
            for name, each in zip(names, inputs, strict=True)
        ]
        made = [make_tensor_value_info(name, 0, None) for name in node.output]
        return PreparedModel(make_model(make_graph([node], "node", given, made))).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether models run on a device; only on the processor."""
        return device == "CPU"


is_compatible = EngineBackend.is_compatible
prepare = EngineBackend.prepare
run_model = EngineBackend.run_model
run_node = EngineBackend.run_node
supports_device = EngineBackend.supports_device
