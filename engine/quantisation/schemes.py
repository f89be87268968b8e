"""Ways to compute a layer with fewer bits: factors of bfloat16, int8 values, or weights in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import Final, NamedTuple, Protocol

import numpy as np

from engine.layers import PRECISION
from engine.layers.linear.block_linear import packed_codes
from engine.layers.linear.matmul import Matmul
from engine.passes.support.rewriting import renamed, tensor
from engine.pnnx import Operator
from engine.quantisation.histogram import Affine
from engine.quantisation.layers import Int8Layer, QuantisableLayer, QuantisableProduct, quantise_operators
from engine.tensor import Array

# Bytes that a layer must save if it is not faster.
_LEAST_SAVED: Final = 1_000_000
# Scales that are tried for a block, relative to that which represents its largest weight.
_SHARES: Final = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75)
# Bits from which that scale is the best.
_FINE_BITS: Final = 8
# Weights that are rounded at a time.
_PIECE: Final = 1 << 20


class Scheme(Protocol):
    """Way to compute layers with fewer bits."""

    @property
    def precision(self) -> str:
        """Name in reports."""

    @property
    def corrects(self) -> bool:
        """Return whether the mean error of each output channel is added to the bias."""

    def read(self, layer: QuantisableLayer, prefix: str, input: str) -> tuple[str, Sequence[Operator]]:
        """Return the operand that the layer reads instead of its input, and the operators that make it.

        Args:
            prefix: beginning of all names that are new.
        """

    def compute(
        self, layer: QuantisableLayer, prefix: str, input: str, output: str, correction: Array | None = None
    ) -> Iterator[Operator]:
        """Yield the operators of the layer.

        Args:
            prefix: beginning of all names that are new, and the name of the operator that makes the output.
            input, output: operands that it reads and makes.
            correction: added to the bias.
        """

    def saved_bytes(self, layer: QuantisableLayer) -> int:
        """Return the bytes by which the layer's weights become smaller."""

    def is_worth(self, layer: QuantisableLayer, *, is_faster: bool) -> bool:
        """Return whether a layer is quantised if the error allows it."""


class BFloat16:
    """Factors of products rounded to bfloat16 as they are read; what is stored stays float32.

    The operators get a parameter that allows it. Processors without such products ignore it.
    """

    precision = "bf16"
    corrects = False

    def read(self, layer: QuantisableLayer, prefix: str, input: str) -> tuple[str, Sequence[Operator]]:
        return input, ()

    def compute(
        self, layer: QuantisableLayer, prefix: str, input: str, output: str, correction: Array | None = None
    ) -> Iterator[Operator]:
        is_own = prefix == layer.name
        made = [each.name for op in layer.operators for each in op.outputs]
        names = {**({} if is_own else {name: f"{prefix}/{name}" for name in made}), layer.output: output}
        for op in layer.operators:
            is_last = op.name == layer.name
            is_product = is_last or isinstance(op.definition, Matmul)
            yield with_fields(
                renamed(op.source, names),
                name=prefix if is_last else op.name if is_own else f"{prefix}/{op.name}",
                params={**op.params, **({PRECISION: self.precision} if is_product else {})},
            )

    def saved_bytes(self, layer: QuantisableLayer) -> int:
        return 0

    def is_worth(self, layer: QuantisableLayer, *, is_faster: bool) -> bool:
        return is_faster


@dataclass(frozen=True, slots=True)
class Int8:
    """Bytes for activations and weights.

    Args:
        factors: what the channels of an operand are divided by before, and the weights multiplied by.
        affines: scale and zero point of every operand that a layer reads, after the division.
    """

    factors: Mapping[str, Array]
    affines: Mapping[str, Affine]
    precision = "int8"
    corrects = True

    def read(self, layer: QuantisableLayer, prefix: str, input: str) -> tuple[str, Sequence[Operator]]:
        if layer.rounds_input:
            return input, ()
        operators: list[Operator] = []
        if layer.input in self.factors:
            inverse, equalised = f"{prefix}/inverse", f"{prefix}/equalised"
            operators = [
                tensor(inverse, 1 / self.factors[layer.input]),
                Operator("pnnx.Expression", equalised, (input, inverse), (equalised,), {"expr": "mul(@0,@1)"}),
            ]
            input = equalised
        return prefix, [*operators, *quantise_operators(prefix, input, self.affines[layer.input])]

    def compute(
        self, layer: QuantisableLayer, prefix: str, input: str, output: str, correction: Array | None = None
    ) -> Iterator[Operator]:
        if isinstance(layer, QuantisableProduct) and layer.input in self.factors:
            layer = layer.multiplied(self.factors[layer.input])
        assert isinstance(layer, Int8Layer)
        return layer.in_int8(prefix, input, output, self.affines[layer.input].scale, correction)

    def saved_bytes(self, layer: QuantisableLayer) -> int:
        assert isinstance(layer, Int8Layer)
        return layer.saved_bytes

    def is_worth(self, layer: QuantisableLayer, *, is_faster: bool) -> bool:
        return is_faster


class BlockWeights:
    """Weights of a few bits in blocks with a scale; activations stay float32.

    Args:
        bits: of a weight, 4 or 8.
        block_size: weights of a block.
    """

    corrects = False

    def __init__(self, bits: int, block_size: int) -> None:
        self._bits = bits
        self._block_size = block_size
        self._done: dict[str, RoundedWeights] = {}

    @property
    def precision(self) -> str:
        return f"int{self._bits}-weights"

    def read(self, layer: QuantisableLayer, prefix: str, input: str) -> tuple[str, Sequence[Operator]]:
        return input, ()

    def compute(
        self, layer: QuantisableLayer, prefix: str, input: str, output: str, correction: Array | None = None
    ) -> Iterator[Operator]:
        found = self._rounded(layer)
        stored = {"weight": found.codes, "scales": found.scales}
        if (bias := _product(layer).bias) is not None:
            stored["bias"] = bias
        for name, values in stored.items():
            yield tensor(f"{prefix}/{name}", values)
        yield Operator(
            "engine.BlockLinear",
            prefix,
            (input, *(f"{prefix}/{name}" for name in stored)),
            (output,),
            {"bits": self._bits, "block_size": self._block_size},
            labels=("input", *stored),
        )

    def saved_bytes(self, layer: QuantisableLayer) -> int:
        found = self._rounded(layer)
        return _product(layer).weight.nbytes - found.codes.nbytes - found.scales.nbytes

    def is_worth(self, layer: QuantisableLayer, *, is_faster: bool) -> bool:
        return is_faster or self.saved_bytes(layer) >= _LEAST_SAVED

    def weight_noise(self, layer: QuantisableLayer) -> float:
        """Return the energy of the weights' error relative to that of the weights."""
        return self._rounded(layer).noise

    def _rounded(self, layer: QuantisableLayer) -> RoundedWeights:
        if layer.name not in self._done:
            self._done[layer.name] = round_in_blocks(_product(layer).weight, self._bits, self._block_size)
        return self._done[layer.name]


def _product(layer: QuantisableLayer) -> QuantisableProduct:
    assert isinstance(layer, QuantisableProduct)
    return layer


class RoundedWeights(NamedTuple):
    """Weights of a few bits in blocks.

    Args:
        codes, scales: as ``BlockLinear`` stores them.
        noise: energy of the error relative to that of the weights.
    """

    codes: Array
    scales: Array
    noise: float


def round_in_blocks(weight: Array, bits: int, block_size: int) -> RoundedWeights:
    """Return weights (O, I) with the scales that give the least squared error of each block.

    The weight of the largest magnitude becomes the lowest or the highest code, or lies a little outside.
    """
    rows = max(1, _PIECE // max(1, weight.shape[1]))
    found = [_rounded(weight[first : first + rows], bits, block_size) for first in range(0, len(weight), rows)]
    codes, scales = (np.concatenate([each[k] for each in found]) for k in (0, 1))
    energy = float(np.square(weight, dtype=np.float64).sum())
    return RoundedWeights(codes, scales, sum(error for *_, error in found) / energy if energy else 0.0)


def _rounded(weight: Array, bits: int, block_size: int) -> tuple[Array, Array, float]:
    """Return the codes, scales and summed squared error of some rows."""
    half, blocks = 1 << (bits - 1), -(-weight.shape[1] // block_size)
    padded = np.zeros((len(weight), blocks * block_size), np.float32)
    padded[:, : weight.shape[1]] = weight
    values = padded.reshape(len(weight), blocks, block_size)
    extremes = np.take_along_axis(values, np.abs(values).argmax(-1)[..., None], -1)
    codes, scales = np.zeros(values.shape, np.float32), np.zeros(extremes.shape, np.float32)
    errors = np.full(extremes.shape, np.inf)
    shares = _SHARES if bits < _FINE_BITS else _SHARES[:1]
    for factor in (share / largest for largest in (-half, half - 1) for share in shares):
        scale = extremes * np.float32(factor)
        inverse = np.divide(1, scale, out=np.zeros_like(scale), where=np.abs(scale) > np.finfo(np.float32).tiny)
        nearest = np.clip(np.rint(values * inverse), -half, half - 1)
        error = np.square(nearest * scale - values, dtype=np.float64).sum(-1, keepdims=True)
        is_better = error < errors
        for best, new in ((codes, nearest), (scales, scale), (errors, error)):
            np.copyto(best, new, where=is_better)
    return packed_codes(codes + half, bits), scales[..., 0], float(errors.sum())
