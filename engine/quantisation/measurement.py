"""Cost of layers in fewer bits: time in the network, and error on operands that the layer had in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from engine.graph import RuntimeGraph
from engine.pnnx import Graph, Operator
from engine.quantisation.assembly import assemble
from engine.quantisation.calibration import Calibration, prepared
from engine.quantisation.layers import QuantisableLayer
from engine.quantisation.schemes import Scheme
from engine.quantisation.timing import layer_times, measure_kernels
from engine.tensor import Array, TensorSpec

# A layer whose time falls by less stays in float32.
_LEAST_GAIN: Final = 0.05


class LayerCost(NamedTuple):
    """Cost of one layer.

    Args:
        float_us, int8_us: time of its kernels in the float32 network, and with all layers in fewer bits.
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
    graph: RuntimeGraph,
    layers: Sequence[QuantisableLayer],
    calibration: Calibration,
    scheme: Scheme,
    sample: Sequence[Array],
    threads: int | None,
) -> list[LayerCost]:
    """Measure the error of every layer alone, and its time in the network, with all layers quantised and with none.

    Args:
        graph: the float32 network.
        sample: inputs that it is timed with.
    """
    inputs = [[each[layer.input] for layer in layers] for each in calibration.operands]
    with prepared(_side_by_side(layers, calibration.operands[0], scheme), threads) as session:
        results = [session.run(each) for each in inputs]
    found = []
    for index, layer in enumerate(layers):
        expected = [each[layer.output] for each in calibration.operands]
        errors = [each[index] - right for each, right in zip(results, expected, strict=True)]
        noise, correction = _error(layer, errors, expected, corrects=scheme.corrects and not layer.rounds_input)
        found.append((noise, correction, _corrected(layer, errors, correction)))
    corrections = {layer.name: each[1] for layer, each in zip(layers, found, strict=True)}
    kernels = measure_kernels((graph, assemble(graph, layers, scheme, corrections)), sample, threads)
    times = [layer_times(each, layers) for each in kernels]
    return [
        LayerCost(float_us, int8_us, noise, correction, errors, noise)
        for float_us, int8_us, (noise, correction, errors) in zip(*times, found, strict=True)
    ]


def _side_by_side(layers: Sequence[QuantisableLayer], operands: Mapping[str, Array], scheme: Scheme) -> RuntimeGraph:
    """Return a graph of all layers in fewer bits, each with an input and an output of its own."""
    built: list[Operator] = []
    annotations: dict[str, TensorSpec] = {}
    for index, layer in enumerate(layers):
        x, y = (operands[name] for name in (layer.input, layer.output))
        built.append(Operator("pnnx.Input", f"{index}/in", (), (f"{index}/x",)))
        read, operators = scheme.read(layer, f"{index}/rounded", f"{index}/x")
        built.extend(operators)
        built.extend(scheme.compute(layer, f"{index}", read, f"{index}/y"))
        built.append(Operator("pnnx.Output", f"{index}/out", (f"{index}/y",), ()))
        annotations |= {f"{index}/{end}": TensorSpec(each.shape, each.dtype) for end, each in (("x", x), ("y", y))}
    graph = RuntimeGraph.from_source(Graph(built, annotations), "layers")
    graph.build()
    return graph


def _error(
    layer: QuantisableLayer, errors: Sequence[Array], expected: Sequence[Array], *, corrects: bool
) -> tuple[float, Array]:
    """Return the relative energy of the error, and the mean error of each output channel that is corrected."""
    moved = [np.moveaxis(each.astype(np.float64), layer.channel_axis, 0) for each in errors]
    differences = np.concatenate([each.reshape(len(each), -1) for each in moved], axis=1)
    means = -differences.mean(1) * corrects
    energy = sum(float(np.square(each.astype(np.float64)).sum()) for each in expected)
    noise = float(np.square(differences + means[:, None]).sum())
    return (noise / energy if energy else 0.0), means.astype(np.float32)


def _corrected(layer: QuantisableLayer, errors: Sequence[Array], correction: Array) -> tuple[Array, ...]:
    """Return the errors that remain when the correction is added to each output channel."""
    shape = [1] * errors[0].ndim
    shape[layer.channel_axis] = len(correction)
    return tuple(each + correction.reshape(shape) for each in errors)
