"""One pass over the samples: statistics of the operands that may be quantised, and outputs to compare with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from dataclasses import replace as with_fields
from itertools import islice

import numpy as np

from engine.cancellation import Progress, check_cancelled
from engine.errors import InputError
from engine.graph import RuntimeGraph
from engine.layers.normalisation.softmax import Softmax
from engine.pnnx import Graph, Operator
from engine.quantisation.equalisation import RANGED, equalising_factors
from engine.quantisation.histogram import Affine, Histogram
from engine.quantisation.layers import QuantisableLayer
from engine.session import Session
from engine.tensor import Array, Shape, specs_of

EVALUATED = 64
"""Most samples whose outputs are recorded, to compare those of a quantised network with them."""

# Samples that the layers are measured with.
_RECORDED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Facts about the float32 network on the samples.

    Args:
        factors: what the channels of an operand are divided by before they are rounded, where that is worth it.
        affines: scale and zero point of every operand that a layer reads, after the division; not of those that have no
            elements in any sample.
        results: scale and zero point of the result of every convolution that no layer reads directly.
        recorded: indices of a few samples of equal shapes, to measure the layers with; their outputs are recorded.
        outputs: outputs of the network for the first samples, by the index of the sample.
        skipped: number of samples that were left out because they make values that are not finite.
    """

    factors: Mapping[str, Array]
    affines: Mapping[str, Affine]
    results: Mapping[str, Affine]
    recorded: tuple[int, ...]
    outputs: Mapping[int, tuple[Array, ...]]
    skipped: int


def calibrate(
    graph: RuntimeGraph,
    layers: Sequence[QuantisableLayer],
    samples: Sequence[Sequence[Array]],
    threads: int | None,
    progress: Progress,
    *,
    equalises: bool = True,
) -> Calibration:
    """Run the float32 network on all samples, and leave out those that make NaN or infinity.

    Args:
        graph: a built graph.
        layers: those of its layers that may be quantised.
        samples: inputs in graph order, one item of the sequence a run.
        threads: cores a run may use.
        progress: called before each sample.
        equalises: whether channels may be divided by factors, which takes more runs of the first samples.

    Raises:
        InputError: there are no samples, one does not fit the graph, or all make values that are not finite.
    """
    if not len(samples):
        raise InputError("there are no samples", expected="at least one")
    read = list(dict.fromkeys(layer.input for layer in layers))
    results = dict.fromkeys(layer.result for layer in layers if layer.result)
    made = [name for name in dict.fromkeys((*(layer.output for layer in layers), *results)) if name not in read]
    names = (*(port.name for port in graph.outputs), *read, *made)
    histograms = {name: Histogram() for name in read}
    recorded: list[int] = []
    shapes: list[Shape] = []
    outputs: dict[int, tuple[Array, ...]] = {}
    skipped: dict[int, str] = {}
    tapped = graph.rebuilt(_with_outputs(graph.source, (*read, *made)))
    with prepared(tapped, threads, samples[0]) as session:

        def runs() -> Iterator[tuple[int, tuple[Array, ...], dict[str, Array]]]:
            """Yield the index of each sample, the outputs of the network and the values of the operands."""
            for index, sample in enumerate(samples):
                check_cancelled()
                values, own = session.run(list(sample)), len(graph.outputs)
                if wrong := [name for name, each in zip(names, values, strict=True) if not _is_finite(each)]:
                    skipped[index] = wrong[0]
                else:
                    yield index, tuple(values[:own]), dict(zip(names[own:], values[own:], strict=True))

        ranged = islice(runs(), RANGED if equalises else 0)
        factors = equalising_factors(layers, (found for _, _, found in ranged))
        of_results = {name: Histogram() for name in results if name not in histograms}
        for index, answers, found in runs():
            progress("calibrating", index, len(samples))
            if len(outputs) < EVALUATED:
                outputs[index] = answers
            for name in read:
                histograms[name].add(found[name] / factors[name] if name in factors else found[name])
            if len(outputs) <= RANGED:
                for name, histogram in of_results.items():
                    histogram.add(found[name])
            own = [each.shape for each in (*samples[index], *found.values())]
            shapes = shapes or own
            if index in outputs and len(recorded) < _RECORDED and own == shapes:
                recorded.append(index)
    if not outputs:
        where = f"operand '{next(iter(skipped.values()))}'"
        raise InputError("every sample makes values that are not finite", where=where, expected="finite numbers")
    return Calibration(
        factors=factors,
        affines=_affines(histograms),
        results=_affines(of_results),
        recorded=tuple(recorded),
        outputs=outputs,
        skipped=len(skipped),
    )


def _affines(histograms: Mapping[str, Histogram]) -> dict[str, Affine]:
    return {name: each.affine() for name, each in histograms.items() if not each.is_empty}


def before_softmax(graph: RuntimeGraph) -> RuntimeGraph:
    """Return a graph whose outputs are the inputs of those softmaxes that made outputs.

    Small errors of a softmax's input change the result much where two classes are equally likely, so one sample would
    decide; and a network is measured alike whether its file ends with a softmax or not.
    """
    scores = {op.outputs[0].name: op.inputs[0].name for op in graph.operators if isinstance(op.definition, Softmax)}
    operators = [
        with_fields(op, inputs=(scores.get(op.inputs[0], op.inputs[0]),)) if op.type == "pnnx.Output" else op
        for op in graph.source.operators
    ]
    return graph.rebuilt(with_fields(graph.source, operators=operators))


def prepared(graph: RuntimeGraph, threads: int | None, inputs: Sequence[Array] = ()) -> closing[Session]:
    """Return a session of a graph, compiled now, as a context that closes it.

    Args:
        graph: a built graph.
        threads: cores a run may use.
        inputs: those of a run. A graph of dynamic sizes is compiled for their sizes, too: other sizes may have to run
            on the reference until they are compiled in the background.
    """
    session = Session(graph, threads=threads, cache=None)
    session.prepare()
    if inputs and any(port.spec is None or None in port.spec.shape for port in graph.inputs):
        session.prepare(specs=specs_of(inputs))
    return closing(session)


def agreement(session: Session, samples: Sequence[Sequence[Array]], expected: Mapping[int, tuple[Array, ...]]) -> float:
    """Return the share of the outputs' energy that a network keeps, of its worst output.

    1 - sum((y - expected)^2) / sum(expected^2); of integers, the share of equal elements.

    Args:
        session: the network.
        samples: inputs of runs.
        expected: outputs by the index of the sample.
    """
    lost, whole = np.zeros((2, len(next(iter(expected.values())))))
    for number, wanted in expected.items():
        check_cancelled()
        for index, (y, right) in enumerate(zip(session.run(list(samples[number])), wanted, strict=True)):
            if y.shape != right.shape:
                part = size = float(max(right.size, 1))
            elif right.dtype.kind in "fc":
                part, size = _energy(y - right), _energy(right)
            else:
                part, size = float((y != right).sum()), float(right.size)
            lost[index] += part
            whole[index] += size
    shares = np.divide(lost, whole, out=np.where(lost > 0, 1.0, 0.0), where=whole > 0)
    return float(1 - shares.max(initial=0.0))


def _is_finite(values: Array) -> bool:
    return values.dtype.kind not in "fc" or bool(np.isfinite(values).all())


def _energy(values: Array) -> float:
    return float(np.square(np.abs(values).astype(np.float64)).sum())


def _with_outputs(source: Graph, operands: Sequence[str]) -> Graph:
    """Return the graph with operands as further outputs."""
    new = [Operator("pnnx.Output", f"calibration/{name}", (name,), ()) for name in operands]
    return with_fields(source, operators=[*source.operators, *new])
