"""Cost of layers in fewer bits: time in the network, and error on operands that the layer had in a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as with_fields
from typing import NamedTuple

import numpy as np

from engine.graph import RuntimeGraph
from engine.pnnx import Operator
from engine.quantisation.assembly import Choice, assemble
from engine.quantisation.calibration import prepared
from engine.quantisation.layers import QuantisableLayer
from engine.quantisation.schemes import BFloat16, Scheme
from engine.quantisation.timing import layer_times, measure_kernels
from engine.tensor import Array


class LayerCost(NamedTuple):
    """Cost of one layer in fewer bits.

    Args:
        float_us, time_us: time of its kernels in the float32 network, and with all layers in fewer bits.
        noise: energy of its error in fewer bits relative to the energy of its output, after the correction.
        correction: mean error of each output channel, to be added to the bias.
        errors: error of its output in each recorded run, after the correction.
        loss: share of the outputs' energy that the network loses if only this layer is in fewer bits.
    """

    float_us: float
    time_us: float
    noise: float
    correction: Array
    errors: tuple[Array, ...] = ()
    loss: float = 0.0


def measure_layers(
    graph: RuntimeGraph,
    layers: Sequence[QuantisableLayer],
    scheme: Scheme,
    runs: Sequence[Sequence[Array]],
    threads: int | None,
) -> list[LayerCost]:
    """Measure the error of every layer alone, and its time in the network, with all layers in fewer bits and with none.

    Args:
        graph: the float32 network.
        runs: inputs of some runs; it is timed with the first.
    """
    found = []
    with prepared(_with_trials(graph, layers, scheme), threads, runs[0]) as session:
        results = [session.run(list(each))[len(graph.outputs) :] for each in runs]
    for index, layer in enumerate(layers):
        expected = [each[2 * index] for each in results]
        errors = [each[2 * index + 1] - right for each, right in zip(results, expected, strict=True)]
        noise, correction = _error(layer, errors, expected, corrects=scheme.corrects and not layer.rounds_input)
        found.append((noise, correction, _corrected(layer, errors, correction)))
    choices = [Choice(layer, scheme, each[1]) for layer, each in zip(layers, found, strict=True)]
    kernels = measure_kernels((graph, assemble(graph, choices)), runs[0], threads)
    times = [layer_times(each, layers) for each in kernels]
    costs = [
        LayerCost(float_us, time_us, noise, correction, errors, noise)
        for float_us, time_us, (noise, correction, errors) in zip(*times, found, strict=True)
    ]
    if isinstance(scheme, BFloat16):  # a layer without an error has its float32 kernel: times differ by chance
        costs = [each if each.noise else each._replace(time_us=each.float_us) for each in costs]
    return costs


def _with_trials(graph: RuntimeGraph, layers: Sequence[QuantisableLayer], scheme: Scheme) -> RuntimeGraph:
    """Return the network with every layer in fewer bits beside it; its output and that of the trial are outputs."""
    built = list(graph.source.operators)
    annotations = dict(graph.source.annotations)
    for index, layer in enumerate(layers):
        prefix = f"trial/{index}"
        output = f"{prefix}/{layer.output}"
        read, operators = scheme.read(layer, f"{prefix}/rounded", layer.input)
        built += [*operators, *scheme.compute(layer, prefix, read, output)]
        built += [Operator("pnnx.Output", f"out/{name}", (name,), ()) for name in (layer.output, output)]
        made = [each.name for op in layer.operators for each in op.outputs if each.name in annotations]
        annotations |= {f"{prefix}/{name}": annotations[name] for name in made}
    return graph.rebuilt(with_fields(graph.source, operators=built, annotations=annotations))


def _error(
    layer: QuantisableLayer, errors: Sequence[Array], expected: Sequence[Array], *, corrects: bool
) -> tuple[float, Array]:
    """Return the relative energy of the error, and the mean error of each output channel that is corrected."""
    moved = [np.moveaxis(each.astype(np.float64), layer.channel_axis, 0) for each in errors]
    differences = np.concatenate([each.reshape(len(each), -1) for each in moved], axis=1)
    means = -differences.sum(1) / max(1, differences.shape[1]) * corrects
    energy = sum(float(np.square(each.astype(np.float64)).sum()) for each in expected)
    noise = float(np.square(differences + means[:, None]).sum())
    return (noise / energy if energy else 0.0), means.astype(np.float32)


def _corrected(layer: QuantisableLayer, errors: Sequence[Array], correction: Array) -> tuple[Array, ...]:
    """Return the errors that remain when the correction is added to each output channel."""
    shape = [1] * errors[0].ndim
    shape[layer.channel_axis] = len(correction)
    return tuple(each + correction.reshape(shape) for each in errors)
