"""Small graphs in memory, written down as short as the file format allows."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine import RuntimeGraph, TensorSpec
from engine.pnnx import Attribute, Graph, Operator

F32 = np.dtype(np.float32)


def op(type: str, name: str, inputs: str = "", outputs: str = "", **given: Any) -> Operator:
    """``op("nn.ReLU", "relu", "0", "1")``; arrays among the keywords are attributes, the rest parameters."""
    attributes = {key: Attribute(a.shape, a.dtype, a) for key, a in given.items() if isinstance(a, np.ndarray)}
    params = {key: value for key, value in given.items() if key not in attributes and key != "labels"}
    operands = tuple(inputs.split())
    return Operator(
        type, name, operands, tuple(outputs.split()), params, attributes, given.get("labels", (None,) * len(operands))
    )


def conv(
    name: str, source: str, target: str, channels: tuple[int, int], kernel: tuple[int, ...] = (3, 3), **given: Any
) -> Operator:
    """A convolution of (in, out) channels without bias or padding, its weights random by its name."""
    rank, groups = len(kernel), given.get("groups", 1)
    random = np.random.default_rng(sum(map(ord, name)))
    weight = random.standard_normal((channels[1], channels[0] // groups, *kernel)).astype(F32)
    params: dict[str, Any] = {
        "in_channels": channels[0],
        "out_channels": channels[1],
        "kernel_size": kernel,
        "stride": (1,) * rank,
        "padding": (0,) * rank,
        "dilation": (1,) * rank,
        "groups": groups,
        "padding_mode": "zeros",
        "bias": False,
        "weight": weight,
    }
    return op(f"nn.Conv{rank}d", name, source, target, **{**params, **given})


def graph(*operators: Operator, **shapes: tuple[int | None, ...] | TensorSpec) -> RuntimeGraph:
    """A graph to build; shapes are annotations by operand name with a leading ``_`` (``_0=(1, 3)``), float32."""
    specs = {
        name.removeprefix("_"): shape if isinstance(shape, TensorSpec) else TensorSpec(shape, F32)
        for name, shape in shapes.items()
    }
    return RuntimeGraph.from_source(Graph(list(operators), specs))


def built(*operators: Operator, **shapes: tuple[int | None, ...] | TensorSpec) -> RuntimeGraph:
    """The same, built."""
    result = graph(*operators, **shapes)
    result.build()
    return result


INPUT = op("pnnx.Input", "pnnx_input_0", "", "0")
