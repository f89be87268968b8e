"""Multi-head attention as a module with its projections."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.attention.attention import AttentionMask, MaskedAttention
from engine.layers.attention.multihead_operands import (
    Arrangement,
    Masks,
    Sequences,
    check_masks,
    find_masks,
    find_sequences,
)
from engine.layers.convolution.pad import Pad
from engine.layers.creation.container import formula
from engine.layers.definition.composite import CallLayer, Composite, UnknownSizeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations
from engine.layers.definition.registry import register
from engine.layers.indexing.masking import Where
from engine.layers.indexing.slicing import Slice
from engine.layers.linear.linear import Linear
from engine.layers.linear.matmul import Matmul
from engine.layers.normalisation.softmax import Softmax
from engine.layers.operands.axes import may_equal
from engine.layers.reduction.reduction import Mean
from engine.layers.shape.expand import ExpandAs
from engine.layers.shape.join import Cat
from engine.layers.shape.permute import Permute, Transpose
from engine.layers.shape.shape import Flatten, Reshape, Unflatten, Unsqueeze
from engine.layers.shape.split import Chunk, Split
from engine.promotion import Category, dtype_category, promote_types
from engine.tensor import Array, Shape, TensorSpec, format_shape, product, specs_of

ATTENDED: Final = "attended"
WEIGHTS: Final = "weights"


@register("nn.MultiheadAttention",
          flags={"bias": ("in_proj_bias", "out_proj_bias"), "add_bias_kv": ("bias_k", "bias_v")})  # fmt: skip
class MultiheadAttention(Composite):
    """Project, split into heads, softmax(query @ key.T / sqrt(width of a head) + masks) @ value, join, project.

    Shapes:
        operands: query, key and value (B, L, E) with batch_first, else (L, B, E), or unbatched (L, E); fewer stand for
        several. Among them masks: (L, S) or (B*H, L, S), and (B, S) or (S,) for keys to leave out.
        ->  as the query; or the weights (B, L, S), their mean over the heads, or (B, H, L, S); or both: as annotated
    Dtypes:
        floating; masks bool (True is left out) or floating (added to the scores).
    Parameters:
        add_zero_attn: one more position, all zeros, can be attended to; bias_k and bias_v likewise add one.
    Raises:
        ShapeError: when operands do not fit, or their roles are ambiguous.
        ParameterError: when attributes do not fit, or the file shows that a mask was lost.
    Source:
        torch.nn.MultiheadAttention. A row whose every position is masked gives NaN where the weights are wanted, and
        zeros where they are not, as need_weights=False does.
    """

    embed_dim: int
    num_heads: int
    kdim: int | None = None
    vdim: int | None = None
    add_zero_attn: bool = False
    batch_first: bool = False
    annotations: Annotations = NO_ANNOTATIONS

    def __post_init__(self) -> None:
        if self.num_heads < 1 or self.embed_dim < 1 or self.embed_dim % self.num_heads:
            raise ParameterError(
                "embed_dim is not divisible by the number of heads", found=f"{self.embed_dim} by {self.num_heads}"
            )
        if len(self.annotations.outputs) > 2:
            raise ParameterError("too many outputs", found=len(self.annotations.outputs), expected="1 or 2")

    def infer(self, *operands: TensorSpec, **attributes: TensorSpec | None) -> Any:
        given = {name: spec for name, spec in attributes.items() if spec is not None}
        self._check_attributes({name: spec.shape for name, spec in given.items()})
        arrangement = self._arrangement(operands)
        sequences = self._sequences(operands, arrangement)
        if all(spec.is_static for spec in operands):
            self._masks(operands, sequences, arrangement)
        query, key, _ = (operands[index].shape for index in sequences)
        dtype = promote_types(operands[sequences[0]].dtype, given["out_proj_weight"].dtype)
        added = ("bias_k" in given) + self.add_zero_attn
        shapes = [
            self._weights_shape(query, key, added, arrangement) if each is WEIGHTS else query
            for each in self.kinds(arrangement)
        ]
        specs = tuple(TensorSpec(shape, dtype) for shape in shapes)
        return specs[0] if len(specs) == 1 else specs

    def compose(
        self,
        call: CallLayer,
        *operands: Array,
        out_proj_weight: Array,
        out_proj_bias: Array | None = None,
        in_proj_weight: Array | None = None,
        in_proj_bias: Array | None = None,
        q_proj_weight: Array | None = None,
        k_proj_weight: Array | None = None,
        v_proj_weight: Array | None = None,
        bias_k: Array | None = None,
        bias_v: Array | None = None,
    ) -> Any:
        specs = specs_of(operands)
        arrangement = self._arrangement(specs)
        sequences = self._sequences(specs, arrangement)
        masks = self._open_masks(specs, sequences, arrangement)
        separate = [each for each in (q_proj_weight, k_proj_weight, v_proj_weight) if each is not None]
        projected = self._projected(call, operands, sequences, in_proj_weight, separate, in_proj_bias)
        heads = [self._split(call, each, arrangement) for each in projected]
        added = [] if bias_k is None or bias_v is None else [(bias_k, bias_v)]
        if self.add_zero_attn:
            added.append((np.zeros(self.embed_dim, heads[1].dtype),) * 2)
        fitted = self._masks_of_heads(call, operands, masks, heads)
        fitted = [call(Pad(pad=(0, len(added))), mask) for mask in fitted] if added else fitted
        for rows in added:
            heads[1:] = (self._with_position(call, *pair) for pair in zip(heads[1:], rows, strict=True))
        kinds = self.kinds(arrangement)
        attended, weights = self._attended(call, heads, fitted, wants_weights=WEIGHTS in kinds)
        order = {2: (1, 0, 2), 3: (0, 2, 1, 3) if self.batch_first else (2, 0, 1, 3)}[arrangement.rank]
        joined = call(Flatten(start_dim=-2), call(Permute(dims=order), attended))
        results = []
        for kind in kinds:
            if kind is ATTENDED:
                results.append(call(Linear(), joined, out_proj_weight, out_proj_bias))
            else:
                results.append(call(Mean(dim=(-3,)), weights) if self._averages(arrangement) else weights)
        return results[0] if len(results) == 1 else tuple(results)

    def _projected(
        self,
        call: CallLayer,
        operands: Sequence[Array],
        sequences: Sequences,
        weight: Array | None,
        separate: Sequence[Array],
        bias: Array | None,
    ) -> list[Any]:
        """Return projected query, key and value; those of one operand are computed together."""
        parts: list[int] = []  # the number of projections of each operand that follow each other
        for before, each in pairwise((None, *(operands[index] for index in sequences))):
            parts = [*parts[:-1], parts[-1] + 1] if each is before and weight is not None else [*parts, 1]
        sizes = Split(
            split_size_or_sections=tuple(part * self.embed_dim for part in parts),
            annotations=Annotations(outputs=(None,) * len(parts)),
        )
        if len(parts) > 1:
            biases = (None,) * len(parts) if bias is None else call(sizes, bias)
            weights = separate if weight is None else call(sizes, weight)
        else:
            biases, weights = (bias,), (weight,)
        results: list[Any] = []
        for count, each, shift in zip(parts, weights, biases, strict=True):
            joined = call(Linear(), operands[sequences[len(results)]], each, shift)
            chunks = Chunk(chunks=count, dim=-1, annotations=Annotations(outputs=(None,) * count))
            results += call(chunks, joined) if count > 1 else [joined]
        return results

    def _split(self, call: CallLayer, x: Any, arrangement: Arrangement) -> Any:
        """Return a projected sequence as (B, H, L, width of a head), or (H, L, width of a head) without a batch."""
        order = {2: (1, 0, 2), 3: (0, 2, 1, 3) if self.batch_first else (1, 2, 0, 3)}[arrangement.rank]
        sizes = self.num_heads, self.embed_dim // self.num_heads
        return call(Permute(dims=order), call(Unflatten(dim=-1, sizes=sizes), x))

    def _with_position(self, call: CallLayer, heads: Any, position: Array) -> Any:
        """Return keys or values with one more position, the same for all sequences."""
        row = call(Reshape(shape=(self.num_heads, 1, self.embed_dim // self.num_heads)), position)
        one = call(Slice(dims=(-2,), starts=(0,), ends=(1,)), heads)
        return call(Cat(dim=-2), heads, call(ExpandAs(), row, one))

    def _open_masks(self, specs: Sequence[TensorSpec], sequences: Sequences, arrangement: Arrangement) -> Masks | int:
        """Return the masks; or a single operand, whose role only the sizes of a run tell."""
        try:
            return self._masks(specs, sequences, arrangement)
        except ShapeError:
            if all(spec.is_static for spec in specs):
                raise
            rest = [index for index, _ in enumerate(specs) if index not in sequences]
            if len(rest) != 1 or None not in specs[rest[0]].shape or specs[rest[0]].rank != 2 or arrangement.rank != 3:
                raise UnknownSizeError("the roles of the masks") from None
            return rest[0]

    def _masks_of_heads(
        self, call: CallLayer, operands: Sequence[Array], masks: Masks | int, heads: Sequence[Any]
    ) -> list[Any]:
        """Return the masks, as they broadcast to the scores (B, H, L, S)."""
        if isinstance(masks, int):
            fitting = AttentionMask(prefers_queries=self._labelled == masks)
            return [call(fitting, operands[masks], *heads[:2])]
        found = []
        if masks.attention is not None:
            mask = operands[masks.attention]
            is_stacked = len(mask.shape) == 3
            found.append(call(Unflatten(dim=0, sizes=(-1, self.num_heads)), mask) if is_stacked else mask)
        if masks.padding is not None:
            mask = operands[masks.padding]
            found.append(call(Unsqueeze(dim=(1, 2)), mask) if len(mask.shape) == 2 else mask)
        return found

    def _attended(
        self, call: CallLayer, heads: Sequence[Any], masks: Sequence[Any], *, wants_weights: bool
    ) -> tuple[Any, Any]:
        """Return the attention of heads, and its weights where they are wanted."""
        if not wants_weights:
            return call(MaskedAttention(), *heads, *masks), None
        query, key, value = heads
        products = call(Matmul(), query, call(Transpose(dim0=-1, dim1=-2), key))
        scores = formula(call, f"mul(@0,{1 / math.sqrt(self.embed_dim // self.num_heads)})", products)
        for mask in masks:
            added = call(Where(), mask, -math.inf, 0.0) if mask.dtype == np.bool_ else mask
            scores = formula(call, "add(@0,@1)", scores, added)
        weights = call(Softmax(dim=-1), scores)
        return call(Matmul(), weights, value), weights

    def roles(self, specs: Sequence[TensorSpec]) -> tuple[Arrangement, Sequences, Masks]:
        """Return the layout of sequences, and the role of each operand.

        Raises:
            ShapeError: they do not fit, or their roles are ambiguous.
            ParameterError: the file shows that a mask was lost.
        """
        arrangement = self._arrangement(specs)
        sequences = self._sequences(specs, arrangement)
        return arrangement, sequences, self._masks(specs, sequences, arrangement)

    def kinds(self, arrangement: Arrangement) -> tuple[str, ...]:
        """Return the kind of each output: ``attended`` or ``weights``."""
        first = self.annotations.outputs[0]
        if first is None or self._is_attended(first, arrangement):
            return (ATTENDED, WEIGHTS)[: len(self.annotations.outputs)]
        return (WEIGHTS, ATTENDED)[: len(self.annotations.outputs)]

    def flops(self, output: Any, *operands: object) -> int:
        specs = [spec for spec in operands if isinstance(spec, TensorSpec)]
        arrangement = self._arrangement(specs)
        query, key, value = (specs[index].shape for index in self._sequences(specs, arrangement))
        positions = [(product(shape[:-1]) or 0) * (shape[-1] or 0) for shape in (query, query, key, value)]
        queries, keys = product(query[:-1]) or 0, arrangement.length(key) or 0
        return 2 * self.embed_dim * (sum(positions) + 2 * queries * keys)

    def scratch_bytes(self, output: Any, *operands: object) -> int:
        """Return the bytes of two tables of a score for each head, query and key."""
        specs = [spec for spec in operands if isinstance(spec, TensorSpec)]
        arrangement = self._arrangement(specs)
        query, key, _ = (specs[index].shape for index in self._sequences(specs, arrangement))
        queries, keys = product(query[:-1]) or 0, arrangement.length(key) or 0
        return 2 * self.num_heads * queries * keys * max(4, specs[0].dtype.itemsize)

    def _check_attributes(self, shapes: Mapping[str, Shape]) -> None:
        e, widths = self.embed_dim, self._widths
        expected: dict[str, Shape] = {
            "out_proj_weight": (e, e), "out_proj_bias": (e,), "in_proj_weight": (3 * e, e), "in_proj_bias": (3 * e,),
            "q_proj_weight": (e, e), "k_proj_weight": (e, widths[1]), "v_proj_weight": (e, widths[2]),
            "bias_k": (1, 1, e), "bias_v": (1, 1, e),
        }  # fmt: skip
        for name, shape in shapes.items():
            if shape != expected[name]:
                found = format_shape(shape)
                raise ParameterError(
                    f"attribute '{name}' does not fit", found=found, expected=format_shape(expected[name])
                )
        if "in_proj_weight" not in shapes and not {"q_proj_weight", "k_proj_weight", "v_proj_weight"} <= shapes.keys():
            raise ParameterError("attribute 'in_proj_weight' is missing")

    @property
    def _widths(self) -> tuple[int, int, int]:
        return (
            self.embed_dim,
            self.embed_dim if self.kdim is None else self.kdim,
            self.embed_dim if self.vdim is None else self.vdim,
        )

    @property
    def _labelled(self) -> int | None:
        labels = self.annotations.labels
        return labels.index("attn_mask") if "attn_mask" in labels else None

    @property
    def _annotated(self) -> list[TensorSpec] | None:
        """The annotations of the operands; None unless all are annotated."""
        known = [spec for spec in self.annotations.inputs if spec is not None]
        return known if known and len(known) == len(self.annotations.inputs) else None

    def _arrangement(self, specs: Sequence[TensorSpec]) -> Arrangement:
        ranks = {
            spec.rank
            for spec in self._annotated or specs
            if dtype_category(spec.dtype) is Category.FLOATING and spec.rank and spec.shape[-1] in (None, *self._widths)
        }
        unbatched = 3 not in ranks or any(spec is not None and spec.rank == 2 for spec in self.annotations.outputs)
        return Arrangement(
            rank=2 if unbatched else 3, batch_first=self.batch_first, heads=self.num_heads, widths=self._widths
        )

    def _sequences(self, specs: Sequence[TensorSpec], arrangement: Arrangement) -> Sequences:
        found = find_sequences(self._annotated or specs, arrangement, self._labelled)
        if found is None:
            listed = ", ".join(map(str, specs))
            raise ShapeError(
                "query, key and value are ambiguous", found=listed, expected="1 to 3 sequences of known widths"
            )
        if self._labelled is not None and len({*found}) == len(specs):
            raise ParameterError(
                "the attention mask was lost in conversion",
                expected="a float mask, one that is an input, or an export with --opt-level 1",
            )
        _check_sequences([specs[index].shape for index in found], arrangement)
        return found

    def _masks(self, specs: Sequence[TensorSpec], sequences: Sequences, arrangement: Arrangement) -> Masks:
        for known in (self._annotated, specs):
            masks = None if known is None else find_masks(known, sequences, arrangement, self._labelled)
            if masks is not None:
                check_masks(masks, specs, sequences, arrangement)
                return masks
        listed = ", ".join(str(spec) for index, spec in enumerate(specs) if index not in sequences)
        raise ShapeError(
            "attention mask and key padding mask are ambiguous",
            found=listed,
            expected="[L, S] or [B, S], L not B; exported with --opt-level 1, attention is written out",
        )

    def _is_attended(self, spec: TensorSpec, arrangement: Arrangement) -> bool:
        annotated = self._annotated
        if spec.rank != arrangement.rank or spec.shape[-1] != self.embed_dim or annotated is None:
            return annotated is None
        query = annotated[self._sequences(annotated, arrangement)[0]].shape
        return all(map(may_equal, spec.shape, query))

    def _weights_shape(self, query: Shape, key: Shape, added: int, arrangement: Arrangement) -> Shape:
        keys = arrangement.length(key)
        matrix = (arrangement.length(query), None if keys is None else keys + added)
        lead = () if arrangement.rank == 2 else (arrangement.batch(query),)
        return (*lead, *matrix) if self._averages(arrangement) else (*lead, self.num_heads, *matrix)

    def _averages(self, arrangement: Arrangement) -> bool:
        """Return whether the weights are averaged over the heads."""
        spec = self.annotations.outputs[self.kinds(arrangement).index(WEIGHTS)]
        return spec is None or spec.rank == arrangement.rank


def _check_sequences(shapes: Sequence[Shape], arrangement: Arrangement) -> None:
    _, key, value = shapes
    widths_fit = all(map(may_equal, [shape[-1] for shape in shapes], arrangement.widths))
    lengths_fit = may_equal(arrangement.length(key), arrangement.length(value))
    batches = [arrangement.batch(shape) for shape in shapes]
    if not widths_fit or not lengths_fit or not all(may_equal(batches[0], each) for each in batches):
        found = ", ".join(map(format_shape, shapes))
        raise ShapeError("query, key and value do not fit", found=found, expected=f"widths {list(arrangement.widths)}")
