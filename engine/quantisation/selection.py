"""Choice of the layers to quantise: least time or memory with an error of the whole network within a budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np

from engine.cancellation import Progress, silent
from engine.errors import GraphError, InputError, ParameterError
from engine.graph import RuntimeGraph
from engine.graph.typical_sizes import LENGTHS, typical_specs
from engine.passes.optimiser import PASSES, optimise
from engine.quantisation.assembly import Choice, assemble, with_rounded_results
from engine.quantisation.calibration import Calibration, agreement, before_softmax, calibrate, prepared
from engine.quantisation.layers import Int8Layer, QuantisableLayer, QuantisableProduct, find_layers, find_products
from engine.quantisation.measurement import LayerCost, measure_layers
from engine.quantisation.schemes import BFloat16, BlockWeights, Int8, Scheme
from engine.quantisation.sensitivity import output_losses
from engine.quantisation.timing import measure_kernels
from engine.tensor import Array
from engine.toolchain import has_bfloat16

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
# A layer whose time falls by a smaller share keeps its bits.
_LEAST_GAIN: Final = 0.05
# The least time, in µs, that the error of a layer is related to.
_LEAST_GAIN_US: Final = 0.01

Precision: TypeAlias = Literal["int8", "bf16", "auto", "int8-weights", "int4-weights"]
PRECISIONS: Final[tuple[str, ...]] = get_args(Precision)
# Bits of a weight, and weights of a block.
_BLOCKS: Final[Mapping[str, tuple[int, int]]] = {"int8-weights": (8, 128), "int4-weights": (4, 32)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerReport:
    """Report about one layer that could be computed in fewer bits.

    Args:
        name, type: of its operator.
        precision: the precision that was chosen, or ``float32``.
        float_us, bf16_us, int8_us: time of its kernels in float32, with all layers in bfloat16, and with all layers in
            int8 or weights of fewer bits, in µs; None for a precision that was not measured.
        sqnr_db: energy of its output, without samples of its weights, relative to that of the error, in dB. It is of
            the chosen precision, or else of the one with the fewest bits.
        share: its share of the sum of what each layer alone makes the network's outputs lose; of the layers' relative
            errors where nothing is to be kept or there are no samples.
        restore_us: time that a run would take longer if this layer were float32 again; 0 for a float32 layer.
        restore_share: share of that sum over the quantised layers that would vanish then; 0 for a float32 layer.
        saved_bytes: bytes by which its weights are smaller if quantised.
        reason: why it has no fewer bits; empty for a layer with the fewest bits.
    """

    name: str
    type: str
    precision: str
    float_us: float
    int8_us: float | None
    sqnr_db: float
    share: float
    bf16_us: float | None = None
    restore_us: float = 0.0
    restore_share: float = 0.0
    saved_bytes: int = 0
    reason: str = ""

    def describe(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedModel:
    """A network with layers in fewer bits, and how it compares with the float32 network.

    Args:
        graph: built, with quantised layers; the float32 graph if no layer is quantised.
        layers: every layer that could be quantised, in execution order.
        kept: share of the outputs' energy that is kept on the samples, see ``calibration.agreement``; else None.
        float_ms, int8_ms: time of the kernels of a run on the first sample, in float32 and as chosen.
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
    """Compute layers of a network in fewer bits where they become faster, as many as the budget allows.

    Every convolution, linear layer and recurrent network is run in float32 and quantised, on values that the samples
    make. Layers that gain at least 5 % are candidates. If all candidates together lose more than the budget, those with
    the largest error for the time they save stay in float32.

    With ``bf16``, these layers and attention may round their factors to bfloat16 instead, which needs a processor with
    such products. With ``auto`` each layer has the fastest of float32, bfloat16 and int8.

    With ``int4-weights`` and ``int8-weights`` only the weights of linear layers are quantised: in blocks of 32 and 128
    with a scale each. Layers whose weights become at least a megabyte smaller are candidates, too.

    Args:
        graph: a built graph of float32 layers.
        samples: representative inputs in graph order; 50 to 200 runs are usual. Only ``int8`` and ``auto`` need them;
            without samples there is no budget.
        precision: ``int8``, ``bf16``, ``auto``, ``int8-weights`` or ``int4-weights``.
        keep: least share of the outputs' energy that must be kept, 0.999 is a noise of -30 dB.
        threads: cores a run may use; None for all.
        progress: called with what is done now.

    Raises:
        ParameterError: ``keep`` is not between 0 and 1, the precision is unknown, or the processor does not have it.
        GraphError: the graph is quantised already, or has no layer that could be.
        InputError: there are no samples for int8, one does not fit the graph, or all make values that are not finite.
    """
    _check(graph, precision, keep)
    folded, _ = optimise(graph, off=PASSES.keys() - _FOLDING)
    layers, products = _layers(folded, precision)
    is_made_up = precision not in ("int8", "auto") and not len(samples)
    given = [_made_up(folded, 1 if precision in _BLOCKS else LENGTHS[0])] if is_made_up else samples
    scored = before_softmax(folded)
    calibrated = layers if precision in ("int8", "auto") else ()
    calibration = calibrate(scored, calibrated, given, threads, progress, equalises=bool(calibrated))
    if calibrated:  # nothing is known about layers whose input has no elements in any sample
        layers = [each for each in layers if each.input in calibration.affines]
        if not layers:
            raise InputError("the samples have no elements", expected="some for a layer that can be quantised")
    keep = 0.0 if is_made_up else keep
    network = _Network(folded, scored, calibration, given, threads, progress)
    offers: list[Offer] = []
    for scheme in _schemes(precision, calibration):
        offered = products if isinstance(scheme, BFloat16) else layers
        offers += network.offers(offered, scheme, measures_losses=keep > 0)
    if is_made_up:
        offers = [*map(_with_noise_of_weights, offers)]
    chosen, kept = network.best(offers, keep)
    model = network.assembled(chosen) if chosen else folded
    progress("measuring the network", 0, 1)
    float_ms, int8_ms = _times(folded, model, given[0], threads)
    is_worth = any(each.scheme.is_worth(each.layer, is_faster=int8_ms < float_ms) for each in chosen)
    worth = [offers[k] for k in _gains(offers)] if is_worth or not chosen else []
    if not is_worth:
        chosen, kept, model, int8_ms = [], 1.0, folded, float_ms
    in_int8 = [each.layer for each in chosen if isinstance(each.scheme, Int8)]
    return QuantisedModel(
        graph=with_rounded_results(model, in_int8, calibration),
        layers=tuple(_reports(folded, offers, worth, chosen)),
        kept=None if is_made_up else kept,
        float_ms=float_ms,
        int8_ms=int8_ms,
        samples=len(samples) - calibration.skipped,
        skipped=calibration.skipped,
    )


def _check(graph: RuntimeGraph, precision: str, keep: float) -> None:
    """Refuse what cannot be quantised, or not so."""
    if not 0 <= keep <= 1:
        raise ParameterError("keep is out of range", found=keep, expected="0 to 1")
    if precision not in PRECISIONS:
        raise ParameterError("unknown precision", found=precision, expected=", ".join(PRECISIONS))
    if precision == "bf16" and not has_bfloat16():
        raise ParameterError("this processor has no products of bfloat16", found="bf16", expected="AVX512-BF16")
    if any(op.type in _QUANTISED or op.params.get("rounds") or op.allows_bfloat16 for op in graph.operators):
        raise GraphError("the model is quantised already", where=graph.name, expected="a model with float32 layers")


def _layers(graph: RuntimeGraph, precision: str) -> tuple[list[Int8Layer], list[QuantisableLayer]]:
    """Return the layers that may become int8 or have weights of fewer bits, and those that may multiply bfloat16.

    Raises:
        GraphError: there are none.
    """
    layers = [layer for layer in find_layers(graph) if precision not in _BLOCKS or _is_linear(layer)]
    products = find_products(graph) if precision in ("bf16", "auto") else []
    if not layers and not products:
        expected = "a linear layer" if precision in _BLOCKS else "a convolution, a linear or a recurrent layer"
        raise GraphError("no layer can be quantised", where=graph.name, expected=expected)
    return layers, products


def _schemes(precision: str, calibration: Calibration) -> Iterator[Scheme]:
    """Yield the ways to compute a layer, the one with the most bits first."""
    if precision in _BLOCKS:
        yield BlockWeights(*_BLOCKS[precision])
    if precision in ("bf16", "auto") and has_bfloat16():
        yield BFloat16()
    if precision in ("int8", "auto"):
        yield Int8(calibration.factors, calibration.affines)


def _is_linear(layer: QuantisableLayer) -> bool:
    return isinstance(layer, QuantisableProduct) and layer.convolution is None


def _made_up(graph: RuntimeGraph, length: int) -> list[Array]:
    """Return inputs of a graph for measuring: normally distributed floats, zeros of other dtypes.

    Args:
        length: tokens or frames, where their number is dynamic.

    Raises:
        InputError: the shape of an input is unknown, or the graph accepts no sizes that are tried.
    """
    specs = typical_specs(graph, length=length)
    if specs is None:
        raise InputError("the dynamic sizes of the inputs are unknown", where=graph.name, expected="samples")
    random = np.random.default_rng(0)
    drawn = (random.standard_normal(spec.sizes) if spec.dtype.kind == "f" else np.zeros(spec.sizes) for spec in specs)
    return [values.astype(spec.dtype) for values, spec in zip(drawn, specs, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """A layer, a way to compute it in fewer bits, and what that costs."""

    layer: QuantisableLayer
    scheme: Scheme
    cost: LayerCost


@dataclass(frozen=True, slots=True)
class _Network:
    """A float32 network whose layers are measured and chosen.

    Args:
        graph: the network.
        scored: the same before the softmax of its outputs.
        samples: those that it was calibrated with.
    """

    graph: RuntimeGraph
    scored: RuntimeGraph
    calibration: Calibration
    samples: Sequence[Sequence[Array]]
    threads: int | None
    progress: Progress

    def offers(self, layers: Sequence[QuantisableLayer], scheme: Scheme, *, measures_losses: bool) -> list[Offer]:
        """Measure layers computed in one way.

        Args:
            measures_losses: whether to measure what each layer alone makes the network lose.
        """
        self.progress(f"measuring layers in {scheme.precision}", 0, 1)
        runs = [self.samples[index] for index in self.calibration.recorded]
        costs = measure_layers(self.graph, layers, scheme, runs, self.threads)
        if measures_losses:
            given = self.calibration, self.samples, self.threads, self.progress
            losses = output_losses(self.scored, layers, [each.errors for each in costs], *given)
            costs = [each._replace(loss=loss) for each, loss in zip(costs, losses, strict=True)]
        return [Offer(layer, scheme, cost._replace(errors=())) for layer, cost in zip(layers, costs, strict=True)]

    def best(self, offers: Sequence[Offer], keep: float) -> tuple[list[Offer], float]:
        """Return the offers to accept, at most one a layer, and the share of the outputs' energy that is kept."""
        gains = _gains(offers)
        candidates = sorted(gains, key=lambda k: offers[k].cost.loss / max(gains[k], _LEAST_GAIN_US))
        low, high, kept = 0, len(candidates), 1.0
        # Losses of layers add up, so about as many fit as have the budget as their sum.
        sums = np.cumsum([offers[k].cost.loss for k in candidates])
        count = high if not keep else max(1, int(np.searchsorted(sums, 1 - keep, side="right")))
        while low < high:
            found = self._kept(_fewest_bits(offers, candidates[:count]))
            if found >= keep:
                low, kept = count, found
            else:
                high = count - 1
            count = (low + high + 1) // 2
        return _fewest_bits(offers, candidates[:low]), kept

    def assembled(self, chosen: Iterable[Offer]) -> RuntimeGraph:
        """Return the network with layers as the offers say."""
        return assemble(self.graph, (Choice(each.layer, each.scheme, each.cost.correction) for each in chosen))

    def _kept(self, chosen: Sequence[Offer]) -> float:
        self.progress(f"trying {len(chosen)} layers in fewer bits", 0, 1)
        with prepared(before_softmax(self.assembled(chosen)), self.threads, self.samples[0]) as session:
            return agreement(session, self.samples, self.calibration.outputs)


def _with_noise_of_weights(offer: Offer) -> Offer:
    """Return an offer whose noise is that of weights in blocks, which made-up inputs do not affect."""
    if not isinstance(offer.scheme, BlockWeights):
        return offer
    return replace(offer, cost=offer.cost._replace(noise=offer.scheme.weight_noise(offer.layer)))


def _times(
    first: RuntimeGraph, second: RuntimeGraph, sample: Sequence[Array], threads: int | None
) -> tuple[float, float]:
    """Return the time of a run of each network in ms."""
    kernels = measure_kernels((first, second), sample, threads)
    one, other = (sum(each.time_us for each in found) / 1e3 for found in kernels)
    return one, other


def _gains(offers: Sequence[Offer]) -> dict[int, float]:
    """Return the indices of the offers worth accepting, and what each saves, in µs, of the time with more bits."""
    least: dict[str, float] = {}
    gains = {}
    for index, each in enumerate(offers):
        before = least.get(each.layer.name, each.cost.float_us)
        gain = before - each.cost.time_us
        if each.scheme.is_worth(each.layer, is_faster=gain >= _LEAST_GAIN * before):
            gains[index], least[each.layer.name] = gain, each.cost.time_us
    return gains


def _fewest_bits(offers: Sequence[Offer], indices: Iterable[int]) -> list[Offer]:
    """Return one offer for each layer: the last, which has the fewest bits."""
    return list({offers[k].layer.name: offers[k] for k in sorted(indices)}.values())


def _reports(
    graph: RuntimeGraph, offers: Sequence[Offer], worth: Sequence[Offer], chosen: Sequence[Offer]
) -> list[LayerReport]:
    """Return the report of every layer, in execution order.

    Args:
        worth: offers that would be accepted if there were no budget.
    """
    by_layer: dict[str, list[Offer]] = {}
    for each in offers:
        by_layer.setdefault(each.layer.name, []).append(each)
    accepted = {each.layer.name: each for each in chosen}
    shown = {name: accepted.get(name, found[-1]) for name, found in by_layer.items()}
    total = sum(each.cost.loss for each in shown.values()) or 1.0
    present = sum(each.cost.loss for each in chosen) or 1.0
    reports = []
    for op in (each for each in graph.operators if each.name in shown):
        offer, is_chosen, found = shown[op.name], op.name in accepted, by_layer[op.name]
        cost, times = offer.cost, {each.scheme.precision: each.cost.time_us for each in found}
        fewer_bits = found[found.index(offer) + 1 :] if is_chosen else found
        is_worth = any(each in worth for each in fewer_bits)
        reports.append(
            LayerReport(
                name=op.name,
                type=op.type,
                precision=offer.scheme.precision if is_chosen else "float32",
                float_us=cost.float_us,
                bf16_us=times.pop("bf16", None),
                int8_us=next(iter(times.values()), None),
                sqnr_db=float(-10 * np.log10(cost.noise)) if cost.noise else float("inf"),
                share=cost.loss / total,
                restore_us=cost.float_us - cost.time_us if is_chosen else 0.0,
                restore_share=cost.loss / present if is_chosen else 0.0,
                saved_bytes=offer.scheme.saved_bytes(offer.layer),
                reason="" if not fewer_bits else "error" if is_worth else "not faster",
            )
        )
    return reports
