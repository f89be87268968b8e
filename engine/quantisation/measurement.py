"""Time and error of single layers in float32 and in fewer bits, on operands that the network had in a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from engine.graph import RuntimeGraph
from engine.pnnx import Graph, Operator
from engine.quantisation.calibration import Calibration, prepared
from engine.quantisation.layers import QuantisableLayer
from engine.quantisation.schemes import Scheme
from engine.session import Session
from engine.tensor import Array, TensorSpec

_ROUNDS: Final = 9
# A layer whose time falls by less stays in float32: conversions between layers cost as much.
_LEAST_GAIN: Final = 0.05
# In the names of the operators that round a layer's input.
_INPUT: Final = "/input"


class LayerCost(NamedTuple):
    """Cost of one layer.

    Args:
        float_us, int8_us: time of its kernels, and that in fewer bits; the kernel before rounds an int8 layer's input.
        noise: energy of its error in fewer bits relative to the energy of its output, after the correction.
        correction: mean error of each output channel, to be added to the bias.
        errors: error of its output in each recorded run, after the correction.
        loss: share of the outputs' energy that the network loses if only this layer is quantised.
    """

    float_us: float
    int8_us: float
    noise: float
    correction: Array
    errors: tuple[Array, ...] = ()
    loss: float = 0.0

    @property
    def gain_us(self) -> float:
        """Time that int8 saves."""
        return self.float_us - self.int8_us

    @property
    def is_faster(self) -> bool:
        """Return whether int8 saves enough time."""
        return self.gain_us >= _LEAST_GAIN * self.float_us


def measure_layers(
    layers: Sequence[QuantisableLayer], calibration: Calibration, scheme: Scheme, threads: int | None
) -> list[LayerCost]:
    """Run every layer alone in both precisions, in turns, and compare time and results."""
    shapes = calibration.operands[0]

    def in_float32(layer: QuantisableLayer, index: int) -> Iterator[Operator]:
        yield from layer.in_float32(f"{index}", f"{index}/x", f"{index}/y")

    def in_few_bits(layer: QuantisableLayer, index: int) -> Iterator[Operator]:
        read, operators = scheme.read(layer, f"{index}{_INPUT}", f"{index}/x")
        yield from operators
        yield from scheme.compute(layer, f"{index}", read, f"{index}/y")

    graphs = [_side_by_side(layers, shapes, operators) for operators in (in_float32, in_few_bits)]
    inputs = [[each[layer.input] for layer in layers] for each in calibration.operands]
    times: list[list[Mapping[str, float]]] = [[], []]
    with prepared(graphs[0], threads) as first, prepared(graphs[1], threads) as second:
        for _ in range(_ROUNDS):
            for session, rows in zip((first, second), times, strict=True):
                rows.append(_times(session, inputs[0]))
        results = [second.run(each) for each in inputs]
    costs = []
    for index, layer in enumerate(layers):
        float_us, int8_us = (min(row[f"{index}"] for row in rows) for rows in times)
        expected = [each[layer.output] for each in calibration.operands]
        errors = [each[index] - right for each, right in zip(results, expected, strict=True)]
        noise, correction = _error(layer, errors, expected, corrects=scheme.corrects)
        costs.append(LayerCost(float_us, int8_us, noise, correction, _corrected(layer, errors, correction), noise))
    return costs


def _side_by_side(
    layers: Sequence[QuantisableLayer],
    shapes: Mapping[str, Array],
    operators: Callable[[QuantisableLayer, int], Iterator[Operator]],
) -> RuntimeGraph:
    """Return a graph of all layers, each with an input and an output of its own."""
    built: list[Operator] = []
    annotations: dict[str, TensorSpec] = {}
    for index, layer in enumerate(layers):
        x = shapes[layer.input]
        built.append(Operator("pnnx.Input", f"{index}/in", (), (f"{index}/x",)))
        built.extend(operators(layer, index))
        built.append(Operator("pnnx.Output", f"{index}/out", (f"{index}/y",), ()))
        annotations[f"{index}/x"] = TensorSpec(x.shape, x.dtype)
    graph = RuntimeGraph.from_source(Graph(built, annotations), "layers")
    graph.build()
    return graph


def _times(session: Session, inputs: Sequence[Array]) -> Mapping[str, float]:
    """Return the time of each layer's kernels in µs; operators are named after their layer's index."""
    times: Counter[str] = Counter()
    outputs = session.run(list(inputs), profile=True)
    for row in outputs.kernels:
        for index in {name.split("/")[0] for name in row["operators"] if _INPUT not in name}:
            times[index] += row["time_us"]
    return times


def _error(
    layer: QuantisableLayer, errors: Sequence[Array], expected: Sequence[Array], *, corrects: bool
) -> tuple[float, Array]:
    """Return the relative energy of the error, and the mean error of each output channel that is corrected."""
    differences = np.concatenate(
        [np.moveaxis(each.astype(np.float64), _channels(layer), 0).reshape(len(layer.weight), -1) for each in errors],
        axis=1,
    )
    means = -differences.mean(1) * corrects
    energy = sum(float(np.square(each.astype(np.float64)).sum()) for each in expected)
    noise = float(np.square(differences + means[:, None]).sum())
    return (noise / energy if energy else 0.0), means.astype(np.float32)


def _corrected(layer: QuantisableLayer, errors: Sequence[Array], correction: Array) -> tuple[Array, ...]:
    """Return the errors that remain when the correction is added to each output channel."""
    shape = [1] * errors[0].ndim
    shape[_channels(layer)] = len(correction)
    return tuple(each + correction.reshape(shape) for each in errors)


def _channels(layer: QuantisableLayer) -> int:
    """Return the axis of a layer's output channels."""
    return 1 if layer.convolution is not None else -1
