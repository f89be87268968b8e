"""Choice of the layers to quantise: least time or memory with an error of the whole network within a budget."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np

from engine.cancellation import Progress, silent
from engine.errors import GraphError, InputError, ParameterError
from engine.graph import RuntimeGraph
from engine.graph.typical_sizes import typical_specs
from engine.passes.optimiser import PASSES, optimise
from engine.quantisation.assembly import assemble, with_rounded_results
from engine.quantisation.calibration import Calibration, agreement, before_softmax, calibrate, prepared
from engine.quantisation.layers import QuantisableLayer, QuantisableProduct, find_layers
from engine.quantisation.measurement import LayerCost, measure_layers
from engine.quantisation.schemes import BlockWeights, Int8, Scheme
from engine.quantisation.sensitivity import output_losses
from engine.quantisation.timing import measure_kernels
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
_QUANTISED: Final = ("QuantizeLinear", "DequantizeLinear", "torch.quantize_per_tensor", "engine.BlockLinear")
# The least time, in µs, that the error of a layer is related to.
_LEAST_GAIN_US: Final = 0.01

Precision: TypeAlias = Literal["int8", "int8-weights", "int4-weights"]
PRECISIONS: Final[tuple[str, ...]] = get_args(Precision)
# Bits of a weight, and weights of a block.
_BLOCKS: Final[Mapping[str, tuple[int, int]]] = {"int8-weights": (8, 128), "int4-weights": (4, 32)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerReport:
    """Report about one layer that could be quantised.

    Args:
        name, type: of its operator.
        precision: that of the quantised layers, or ``float32``.
        float_us, int8_us: time of its kernels in float32, and with all layers quantised, in µs.
        sqnr_db: energy of its output, without samples of its weights, relative to that of the error, in dB.
        share: its share of the sum of what each layer alone makes the network's outputs lose; of the layers' relative
            errors where nothing is to be kept or there are no samples.
        restore_us: time that a run would take longer if this layer were float32 again; 0 for a float32 layer.
        restore_share: share of that sum over the quantised layers that would vanish then; 0 for a float32 layer.
        saved_bytes: bytes by which its weights are smaller if quantised.
        reason: why it stays in float32; empty for a quantised layer.
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
    saved_bytes: int = 0
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
        kept: share of the outputs' energy that is kept on the samples, see ``calibration.agreement``; else None.
        float_ms, int8_ms: time of the kernels of a run on the first sample, in float32 and quantised.
        samples: number of samples that the network was calibrated with.
        skipped: number of samples that were left out because they make values that are not finite.
    """

    graph: RuntimeGraph
    layers: tuple[LayerReport, ...]
    kept: float | None
    float_ms: float
    int8_ms: float
    samples: int
    skipped: int = 0

    @property
    def quantised_layers(self) -> int:
        """Number of quantised layers."""
        return sum(layer.precision != "float32" for layer in self.layers)

    @property
    def saved_bytes(self) -> int:
        """Bytes by which the weights of the quantised layers are smaller."""
        return sum(layer.saved_bytes for layer in self.layers if layer.precision != "float32")

    def describe(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "kept": self.kept,
            "float_ms": self.float_ms,
            "int8_ms": self.int8_ms,
            "saved_bytes": self.saved_bytes,
            "samples": self.samples,
            "skipped": self.skipped,
            "layers": [layer.describe() for layer in self.layers],
        }


def quantise(
    graph: RuntimeGraph,
    samples: Sequence[Sequence[Array]] = (),
    *,
    precision: Precision = "int8",
    keep: float = 0.999,
    threads: int | None = None,
    progress: Progress = silent,
) -> QuantisedModel:
    """Quantise the layers of a network that become faster, as many as the budget allows.

    Every convolution, linear layer and recurrent network is run in float32 and quantised, on values that the samples
    make. Layers that gain at least 5 % are candidates. If all candidates together lose more than the budget, those with
    the largest error for the time they save stay in float32.

    With ``int4-weights`` and ``int8-weights`` only the weights of linear layers are quantised: in blocks of 32 and 128
    with a scale each. Layers whose weights become at least a megabyte smaller are candidates, too. Samples may be left
    out; then there is no budget.

    Args:
        graph: a built graph of float32 layers.
        samples: representative inputs in graph order; 50 to 200 runs are usual.
        precision: ``int8``, ``int8-weights`` or ``int4-weights``.
        keep: least share of the outputs' energy that must be kept, 0.999 is a noise of -30 dB.
        threads: cores a run may use; None for all.
        progress: called with what is done now.

    Raises:
        ParameterError: ``keep`` is not between 0 and 1, or the precision is unknown.
        GraphError: the graph is quantised already, or has no layer that could be.
        InputError: there are no samples for int8, one does not fit the graph, or all make values that are not finite.
    """
    if not 0 <= keep <= 1:
        raise ParameterError("keep is out of range", found=keep, expected="0 to 1")
    if precision not in PRECISIONS:
        raise ParameterError("unknown precision", found=precision, expected=", ".join(PRECISIONS))
    if any(op.type in _QUANTISED or op.params.get("rounds") for op in graph.operators):
        raise GraphError("the model is quantised already", where=graph.name, expected="a model with float32 layers")
    folded, _ = optimise(graph, off=PASSES.keys() - _FOLDING)
    blocks = _BLOCKS.get(precision)
    layers = [layer for layer in find_layers(folded) if blocks is None or _is_linear(layer)]
    if not layers:
        expected = "a convolution, a linear or a recurrent layer" if blocks is None else "a linear layer"
        raise GraphError("no layer can be quantised", where=graph.name, expected=expected)
    is_made_up = blocks is not None and not len(samples)
    given = [_made_up(folded)] if is_made_up else samples
    scored = before_softmax(folded)
    calibration = calibrate(scored, layers, given, threads, progress, equalises=blocks is None)
    scheme: Scheme = Int8(calibration.factors, calibration.affines) if blocks is None else BlockWeights(*blocks)
    progress("measuring layers", 0, 1)
    costs = measure_layers(folded, layers, calibration, scheme, given[0], threads)
    if is_made_up and isinstance(scheme, BlockWeights):
        costs = [each._replace(noise=scheme.weight_noise(layer)) for layer, each in zip(layers, costs, strict=True)]
    if keep and not is_made_up:
        errors = [each.errors for each in costs]
        losses = output_losses(scored, layers, errors, calibration, given, threads, progress)
        costs = [each._replace(loss=loss) for each, loss in zip(costs, losses, strict=True)]
    costs = [each._replace(errors=()) for each in costs]
    search = _Search(folded, layers, costs, calibration, scheme, given, threads, progress)
    chosen, kept = search.best(0.0 if is_made_up else keep)
    model = search.assembled(chosen) if chosen else folded
    progress("measuring the network", 0, 1)
    float_ms, int8_ms = _times(folded, model, given[0], threads)
    if not any(scheme.is_worth(layers[k], is_faster=int8_ms < float_ms) for k in chosen):
        chosen, kept, model, int8_ms = [], 1.0, folded, float_ms
    model = with_rounded_results(model, [layers[k] for k in chosen], calibration)
    return QuantisedModel(
        graph=model,
        layers=tuple(_reports(folded, layers, costs, chosen, scheme)),
        kept=None if is_made_up else kept,
        float_ms=float_ms,
        int8_ms=int8_ms,
        samples=len(samples) - calibration.skipped,
        skipped=calibration.skipped,
    )


def _is_linear(layer: QuantisableLayer) -> bool:
    return isinstance(layer, QuantisableProduct) and layer.convolution is None


def _made_up(graph: RuntimeGraph) -> list[Array]:
    """Return inputs of a graph for measuring: normally distributed floats, zeros of other dtypes, one token or frame.

    Raises:
        InputError: the shape of an input is unknown, or the graph accepts no sizes that are tried.
    """
    specs = typical_specs(graph, length=1)
    if specs is None:
        raise InputError("the dynamic sizes of the inputs are unknown", where=graph.name, expected="samples")
    random = np.random.default_rng(0)
    drawn = (random.standard_normal(spec.sizes) if spec.dtype.kind == "f" else np.zeros(spec.sizes) for spec in specs)
    return [values.astype(spec.dtype) for values, spec in zip(drawn, specs, strict=True)]


class _Search:
    """Search for the largest set of layers whose quantisation stays within the budget."""

    def __init__(
        self,
        graph: RuntimeGraph,
        layers: Sequence[QuantisableLayer],
        costs: Sequence[LayerCost],
        calibration: Calibration,
        scheme: Scheme,
        samples: Sequence[Sequence[Array]],
        threads: int | None,
        progress: Progress,
    ) -> None:
        self._graph = graph
        self._layers = layers
        self._costs = costs
        self._calibration = calibration
        self._scheme = scheme
        self._samples = samples
        self._threads = threads
        self._progress = progress

    def best(self, keep: float) -> tuple[list[int], float]:
        """Return the indices of the layers to quantise and the share of the outputs' energy that is kept."""
        costs = self._costs
        candidates = _candidates(self._layers, costs, self._scheme)
        candidates.sort(key=lambda k: costs[k].loss / max(costs[k].gain_us, _LEAST_GAIN_US))
        low, high, kept = 0, len(candidates), 1.0
        # Losses of layers add up, so about as many fit as have the budget as their sum.
        sums = np.cumsum([costs[k].loss for k in candidates])
        count = high if not keep else max(1, int(np.searchsorted(sums, 1 - keep, side="right")))
        while low < high:
            found = self._kept(candidates[:count])
            if found >= keep:
                low, kept = count, found
            else:
                high = count - 1
            count = (low + high + 1) // 2
        return candidates[:low], kept

    def assembled(self, chosen: Collection[int]) -> RuntimeGraph:
        """Return the graph with the chosen layers quantised."""
        layers = [self._layers[k] for k in chosen]
        corrections = {self._layers[k].name: self._costs[k].correction for k in chosen}
        return assemble(self._graph, layers, self._scheme, corrections)

    def _kept(self, chosen: Sequence[int]) -> float:
        self._progress(f"trying {len(chosen)} of {len(self._layers)} layers in {self._scheme.precision}", 0, 1)
        with prepared(before_softmax(self.assembled(chosen)), self._threads, self._samples[0]) as session:
            return agreement(session, self._samples, self._calibration.outputs)


def _times(
    first: RuntimeGraph, second: RuntimeGraph, sample: Sequence[Array], threads: int | None
) -> tuple[float, float]:
    """Return the time of a run of each network in ms."""
    kernels = measure_kernels((first, second), sample, threads)
    one, other = (sum(each.time_us for each in found) / 1e3 for found in kernels)
    return one, other


def _candidates(layers: Sequence[QuantisableLayer], costs: Sequence[LayerCost], scheme: Scheme) -> list[int]:
    """Return the indices of the layers that are quantised if their error allows it."""
    pairs = enumerate(zip(layers, costs, strict=True))
    return [k for k, (layer, cost) in pairs if scheme.is_worth(layer, is_faster=cost.is_faster)]


def _reports(
    graph: RuntimeGraph,
    layers: Sequence[QuantisableLayer],
    costs: Sequence[LayerCost],
    chosen: Collection[int],
    scheme: Scheme,
) -> list[LayerReport]:
    types = {op.name: op.type for op in graph.operators}
    total = sum(cost.loss for cost in costs) or 1.0
    present = sum(costs[k].loss for k in chosen) or 1.0
    candidates = set(_candidates(layers, costs, scheme))
    reports = []
    for index, (layer, cost) in enumerate(zip(layers, costs, strict=True)):
        is_chosen = index in chosen
        reports.append(
            LayerReport(
                name=layer.name,
                type=types[layer.name],
                precision=scheme.precision if is_chosen else "float32",
                float_us=cost.float_us,
                int8_us=cost.int8_us,
                sqnr_db=float(-10 * np.log10(cost.noise)) if cost.noise else float("inf"),
                share=cost.loss / total,
                restore_us=cost.gain_us if is_chosen else 0.0,
                restore_share=cost.loss / present if is_chosen else 0.0,
                saved_bytes=scheme.saved_bytes(layer),
                reason="" if is_chosen else "error" if index in candidates else "not faster",
            )
        )
    return reports
