"""Choice of the layers to quantise: least time with an error of the whole network within a budget."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from dataclasses import replace as with_fields
from typing import Any, Final

import numpy as np

from engine.cancellation import Progress, silent
from engine.errors import GraphError, ParameterError
from engine.graph import RuntimeGraph
from engine.passes.optimiser import PASSES, optimise
from engine.pnnx import Operator
from engine.quantisation.calibration import Calibration, agreement, calibrate, prepared
from engine.quantisation.layers import QuantisableLayer, find_layers, quantise_operators
from engine.quantisation.measurement import LayerCost, measure_layers
from engine.tensor import Array

# Passes that change what a layer computes; the others run again whenever the result is loaded.
_FOLDING: Final = frozenset(
    (
        "dead_operators",
        "identity_removal",
        "constant_folding",
        "parallel_convolutions",
        "fold_batch_norm",
        "unused_channels",
    )
)
_ROUNDS: Final = 15
_QUANTISED: Final = ("QuantizeLinear", "DequantizeLinear", "torch.quantize_per_tensor")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerReport:
    """Report about one layer that could be quantised.

    Args:
        name, type: of its operator.
        precision: ``int8`` or ``float32``.
        float_us, int8_us: time of the layer alone, in µs.
        sqnr_db: energy of its output relative to that of its error in int8, in dB.
        share: its share of the sum of all layers' relative errors.
        restore_us: time that a run would take longer if this int8 layer were float32 again; 0 for a float32 layer.
        restore_share: share of the sum of the int8 layers' errors that would vanish then; 0 for a float32 layer.
        reason: why it stays in float32; empty for an int8 layer.
    """

    name: str
    type: str
    precision: str
    float_us: float
    int8_us: float
    sqnr_db: float
    share: float
    restore_us: float = 0.0
    restore_share: float = 0.0
    reason: str = ""

    def describe(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedModel:
    """A quantised network and how it compares with the float32 network.

    Args:
        graph: built, with quantised layers; the float32 graph if no layer is quantised.
        layers: every layer that could be quantised, in execution order.
        kept: share of the outputs' energy that is kept on the samples, see ``calibration.agreement``.
        float_ms, int8_ms: median time of a run on the first sample.
        samples: number of samples.
    """

    graph: RuntimeGraph
    layers: tuple[LayerReport, ...]
    kept: float
    float_ms: float
    int8_ms: float
    samples: int

    @property
    def quantised_layers(self) -> int:
        """Number of layers in int8."""
        return sum(layer.precision == "int8" for layer in self.layers)

    def describe(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "kept": self.kept,
            "float_ms": self.float_ms,
            "int8_ms": self.int8_ms,
            "samples": self.samples,
            "layers": [layer.describe() for layer in self.layers],
        }


def quantise(
    graph: RuntimeGraph,
    samples: Sequence[Sequence[Array]],
    *,
    keep: float = 0.999,
    threads: int | None = None,
    progress: Progress = silent,
) -> QuantisedModel:
    """Quantise the layers of a network that become faster, as many as the budget allows.

    Every convolution and linear layer is run in float32 and in int8 on values that the samples make. Layers that gain
    at least 5 % are candidates. If all candidates together lose more than the budget, those with the largest error for
    the time they save stay in float32.

    Args:
        graph: a built graph of float32 layers.
        samples: representative inputs in graph order; 50 to 200 runs are usual.
        keep: least share of the outputs' energy that must be kept, 0.999 is a noise of -30 dB.
        threads: cores a run may use; None for all.
        progress: called with what is done now.

    Raises:
        ParameterError: ``keep`` is not between 0 and 1.
        GraphError: the graph is quantised already, or has no layer that could be.
        InputError: there are no samples, or one does not fit the graph.
    """
    if not 0 <= keep <= 1:
        raise ParameterError("keep is out of range", found=keep, expected="0 to 1")
    if any(op.type in _QUANTISED for op in graph.operators):
        raise GraphError("the model is quantised already", where=graph.name, expected="a model with float32 layers")
    folded, _ = optimise(graph, off=PASSES.keys() - _FOLDING)
    layers = find_layers(folded)
    if not layers:
        raise GraphError("no layer can be quantised", where=graph.name, expected="a convolution or a linear layer")
    calibration = calibrate(folded, layers, samples, threads, progress)
    progress("measuring layers", 0, 1)
    costs = measure_layers(layers, calibration, threads)
    search = _Search(folded, layers, costs, calibration, samples, threads, progress)
    chosen, kept = search.best(keep)
    model = search.assembled(chosen) if chosen else folded
    progress("measuring the network", 0, 1)
    float_ms, int8_ms = _times(folded, model, list(samples[0]), threads)
    if not chosen or int8_ms >= float_ms:
        chosen, kept, model, int8_ms = [], 1.0, folded, float_ms
    return QuantisedModel(
        graph=model,
        layers=tuple(_reports(folded, layers, costs, chosen)),
        kept=kept,
        float_ms=float_ms,
        int8_ms=int8_ms,
        samples=len(samples),
    )


class _Search:
    """Search for the largest set of layers whose quantisation stays within the budget."""

    def __init__(
        self,
        graph: RuntimeGraph,
        layers: Sequence[QuantisableLayer],
        costs: Sequence[LayerCost],
        calibration: Calibration,
        samples: Sequence[Sequence[Array]],
        threads: int | None,
        progress: Progress,
    ) -> None:
        self._graph = graph
        self._layers = layers
        self._costs = costs
        self._calibration = calibration
        self._samples = samples
        self._threads = threads
        self._progress = progress

    def best(self, keep: float) -> tuple[list[int], float]:
        """Return the indices of the layers to quantise and the share of the outputs' energy that is kept."""
        costs = self._costs
        candidates = [k for k, cost in enumerate(costs) if cost.is_faster]
        candidates.sort(key=lambda k: costs[k].noise / costs[k].gain_us)
        low, high, kept = 0, len(candidates), 1.0
        count = high  # tried first: mostly all candidates fit
        while low < high:
            found = self._kept(candidates[:count])
            if found >= keep:
                low, kept = count, found
            else:
                high = count - 1
            count = (low + high + 1) // 2
        return candidates[:low], kept

    def assembled(self, chosen: Collection[int]) -> RuntimeGraph:
        """Return the graph with the chosen layers in int8."""
        by_name = {self._layers[k].name: k for k in chosen}
        operators: list[Operator] = []
        done: dict[str, str] = {}
        for op in self._graph.source.operators:
            index = by_name.get(op.name)
            if index is None:
                operators.append(op)
                continue
            layer = self._layers[index]
            if layer.input not in done:
                done[layer.input] = f"{layer.input}/quantised"
                affine = self._calibration.affines[layer.input]
                operators.extend(quantise_operators(done[layer.input], layer.input, affine))
            correction = self._costs[index].correction
            operators.extend(layer.in_int8(layer.name, done[layer.input], layer.output, correction))
        quantised = RuntimeGraph.from_source(with_fields(self._graph.source, operators=operators), self._graph.name)
        quantised.build()
        return quantised.rebuilt(PASSES["dead_operators"](quantised))  # weights in float32

    def _kept(self, chosen: Sequence[int]) -> float:
        self._progress(f"trying {len(chosen)} of {len(self._layers)} layers in int8", 0, 1)
        with prepared(self.assembled(chosen), self._threads) as session:
            return agreement(session, self._samples, self._calibration.outputs)


def _times(first: RuntimeGraph, second: RuntimeGraph, sample: list[Array], threads: int | None) -> tuple[float, float]:
    """Return the median time of a run of each network in ms; the runs alternate."""
    times: list[list[float]] = [[], []]
    with prepared(first, threads) as one, prepared(second, threads) as other:
        for session in (one, other):
            session.run(sample)
        for _ in range(_ROUNDS):
            for session, found in zip((one, other), times, strict=True):
                start = time.perf_counter()
                session.run(sample)
                found.append(time.perf_counter() - start)
    return float(np.median(times[0]) * 1e3), float(np.median(times[1]) * 1e3)


def _reports(
    graph: RuntimeGraph, layers: Sequence[QuantisableLayer], costs: Sequence[LayerCost], chosen: Collection[int]
) -> list[LayerReport]:
    types = {op.name: op.type for op in graph.operators}
    total = sum(cost.noise for cost in costs) or 1.0
    present = sum(costs[k].noise for k in chosen) or 1.0
    reports = []
    for index, (layer, cost) in enumerate(zip(layers, costs, strict=True)):
        is_int8 = index in chosen
        reports.append(
            LayerReport(
                name=layer.name,
                type=types[layer.name],
                precision="int8" if is_int8 else "float32",
                float_us=cost.float_us,
                int8_us=cost.int8_us,
                sqnr_db=float(-10 * np.log10(cost.noise)) if cost.noise else float("inf"),
                share=cost.noise / total,
                restore_us=cost.gain_us if is_int8 else 0.0,
                restore_share=cost.noise / present if is_int8 else 0.0,
                reason="" if is_int8 else "error" if cost.is_faster else "not faster",
            )
        )
    return reports
