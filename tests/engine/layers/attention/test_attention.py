"""Attention: what it refuses, and how it tells what the module's operands are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from engine import Annotations, EngineError, ParameterError, ShapeError, TensorSpec, registry
from engine.layers import BoundLayer, bind
from engine.layers.attention.multihead_operands import Arrangement, Masks, find_masks, find_sequences
from tests.engine.layers.refusals import build, refusal, tensor, zeros

E, H = 8, 2
WEIGHTS = {
    "in_proj_weight": tensor(3 * E, E), "in_proj_bias": tensor(3 * E), "out_proj.weight": tensor(E, E),
    "out_proj.bias": tensor(E),
}  # fmt: skip
BATCHED = Arrangement(rank=3, batch_first=True, heads=H, widths=(E, E, E))
UNBATCHED = Arrangement(rank=2, batch_first=False, heads=H, widths=(E, E, E))
X, Y = tensor(2, 5, E), tensor(2, 6, E)
FITTING = ", expected [..., L, E], [..., S, E], [..., S, V]"
BROADCAST = ", expected each dimension equal or 1, counted from the last"


def boolean(*shape: int) -> TensorSpec:
    return tensor(*shape, dtype="bool")


def module(
    inputs: Sequence[TensorSpec | None],
    outputs: Sequence[TensorSpec | None] = (None,),
    label: int | None = None,
    **params: Any,
) -> BoundLayer:
    """The module as a file with these annotations has it; ``$attn_mask`` labels one of the operands."""
    return bind(
        registry["nn.MultiheadAttention"],
        n_inputs=len(inputs),
        params={"embed_dim": E, "num_heads": H, "batch_first": True, **params},
        attributes={name: zeros(spec) for name, spec in WEIGHTS.items()},
        annotations=Annotations(
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            labels=tuple("attn_mask" if index == label else None for index in range(len(inputs))),
        ),
    )


@pytest.mark.parametrize(
    ("operands", "params", "message"),
    [
        (
            [tensor(3, 4), tensor(5, 6), tensor(5, 4)],
            {},
            "query, key and value do not fit: found [3, 4], [5, 6], [5, 4]" + FITTING,
        ),
        (
            [tensor(3, 4), tensor(5, 4), tensor(6, 4)],
            {},
            "query, key and value do not fit: found [3, 4], [5, 4], [6, 4]" + FITTING,
        ),
        (
            [tensor(3, 4), tensor(5, 4), tensor(5, 4), tensor(3, 6)],
            {},
            "shapes do not broadcast: found [3, 6] and [3, 5]" + BROADCAST,
        ),
        (
            [tensor(3, 4), tensor(5, 4), tensor(5, 4), tensor(2, 3, 5)],
            {},
            "attn_mask does not broadcast to the scores: found [2, 3, 5], expected [3, 5]",
        ),
        (
            [tensor(4, 3, 4), tensor(3, 5, 4), tensor(3, 5, 4)],
            {"enable_gqa": True},
            "heads are not divisible by groups: found 4 by 3",
        ),
    ],
)
def test_operands_that_do_not_fit_are_refused(operands: list[Any], params: dict[str, Any], message: str) -> None:
    assert refusal("F.scaled_dot_product_attention", *operands, **params) == message


def test_a_mask_tells_sizes_that_the_scores_leave_open() -> None:
    layer, dtype = build("F.scaled_dot_product_attention", 4), np.dtype(np.float32)
    states = [TensorSpec((None, None, None, 8), dtype)] * 3
    assert layer.infer([*states, TensorSpec((1, 4, None, None), dtype)]) == TensorSpec((None, 4, None, 8), dtype)
    assert layer.infer([*states, TensorSpec((6, 5), dtype)]) == TensorSpec((None, None, 6, 8), dtype)
    with pytest.raises(ShapeError, match="attn_mask does not broadcast to the scores"):
        layer.infer([*states, TensorSpec((1, 1, 4, None, None), dtype)])


def test_a_constant_added_to_all_scores_changes_nothing() -> None:
    q, k, v = np.random.default_rng(0).normal(size=(3, 2, 4, 8)).astype(np.float32)
    layer = build("F.scaled_dot_product_attention", 4)
    plain, shifted = (layer.forward([q, k, v, np.full((4, 4), shift, np.float32)]) for shift in (0.0, 50.0))
    np.testing.assert_allclose(shifted, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("operands", "labelled", "arrangement", "sequences"),
    [
        ([X], None, BATCHED, (0, 0, 0)),
        ([X, Y], None, BATCHED, (0, 1, 1)),
        ([X, Y, Y], None, BATCHED, (0, 1, 2)),
        ([boolean(2, 5), X], 1, BATCHED, (1, 1, 1)),
        ([boolean(2, 6), boolean(5, 6), X, Y], 3, BATCHED, (2, 3, 3)),
        ([X, Y, Y, tensor(4, 5, 6)], 3, BATCHED, (0, 1, 2)),
        ([X, tensor(4, 5, E)], None, BATCHED, (0, 0, 0)),
        ([tensor(1, 5, E), tensor(2, 5, E)], 1, BATCHED, (0, 0, 0)),
        ([tensor(5, E), tensor(6, E)], None, UNBATCHED, (0, 1, 1)),
        ([tensor(5, E), tensor(E, E), tensor(5, E)], 2, UNBATCHED, (0, 1, 1)),
        ([tensor(5, E), tensor(5)], 1, UNBATCHED, (0, 0, 0)),
    ],
)
def test_sequences_are_told_from_masks_by_shape_and_dtype(
    operands: list[TensorSpec], labelled: int | None, arrangement: Arrangement, sequences: tuple[int, int, int]
) -> None:
    assert find_sequences(operands, arrangement, labelled) == sequences


@pytest.mark.parametrize(
    ("masks", "labelled", "found"),
    [
        ([], None, Masks()),
        ([boolean(2, 6)], 0, Masks(padding=2)),
        ([boolean(5, 6)], 0, Masks(attention=2)),
        ([tensor(4, 5, 6)], None, Masks(attention=2)),
        ([boolean(2, 6), boolean(5, 6)], 0, Masks(padding=2, attention=3)),
        ([tensor(5, 6), tensor(2, 6)], 3, Masks(attention=2, padding=3)),
        ([boolean(5, 5)], 0, None),
        ([boolean(2, 6)] * 3, None, None),
    ],
)
def test_masks_are_told_apart_by_shape(masks: list[TensorSpec], labelled: int, found: Masks | None) -> None:
    assert find_masks([X, Y, *masks], (0, 1, 1), BATCHED, labelled) == found


@pytest.mark.parametrize(
    ("mask", "found"),
    [
        ([boolean(5, 6)], None),
        ([boolean(5, 6)] * 2, Masks(padding=2, attention=3)),
        ([tensor(5, 6)] * 2, Masks(padding=3, attention=2)),
    ],
)
def test_with_as_many_sequences_as_positions_only_two_masks_can_be_told_apart(
    mask: list[TensorSpec], found: Masks | None
) -> None:
    square = [tensor(5, 5, E), tensor(5, 6, E)]
    assert find_masks([*square, *mask], (0, 1, 1), BATCHED, None) == found


def test_a_mask_that_could_be_either_is_the_attention_mask_if_the_label_says_so() -> None:
    operands = [tensor(5, 5, E), boolean(5, 5)]
    assert find_masks(operands, (0, 0, 0), BATCHED, 1) == Masks(attention=1)


def test_what_the_file_says_of_a_mask_holds_at_any_batch_size() -> None:
    layer = module([X, boolean(2, 5)])
    generator = np.random.default_rng(0)
    operands = [generator.normal(size=(5, 5, E)).astype(np.float32), np.eye(5, dtype=np.bool_)]
    assert layer.forward(operands).shape == (5, 5, E)


def test_an_undecidable_mask_is_refused() -> None:
    layer = module([None, None])
    with pytest.raises(ShapeError) as caught:
        layer.infer([tensor(5, 5, E), boolean(5, 5)])
    assert str(caught.value) == (
        "attention mask and key padding mask are ambiguous: found [5, 5] bool, expected [L, S] or [B, S], L not B;"
        " exported with --opt-level 1, attention is written out"
    )


def test_a_mask_the_converter_lost_is_reported() -> None:
    with pytest.raises(ParameterError) as caught:
        module([X], label=0).infer([X])
    assert caught.value.problem == "the attention mask was lost in conversion"
    assert "--opt-level 1" in str(caught.value)


@pytest.mark.parametrize(
    ("outputs", "shapes"),
    [
        ([None], [(2, 5, E)]),
        ([X], [(2, 5, E)]),
        ([tensor(2, 5, 5)], [(2, 5, 5)]),
        ([tensor(2, H, 5, 5)], [(2, H, 5, 5)]),
        ([X, tensor(2, 5, 5)], [(2, 5, E), (2, 5, 5)]),
        ([tensor(2, H, 5, 5), X], [(2, H, 5, 5), (2, 5, E)]),
        ([None, None], [(2, 5, E), (2, 5, 5)]),
    ],
)
def test_outputs_are_what_their_annotations_say(
    outputs: list[TensorSpec | None], shapes: list[tuple[int, ...]]
) -> None:
    layer = module([X], outputs)
    results = layer.forward([zeros(X)])
    results = results if isinstance(results, tuple) else (results,)
    assert [result.shape for result in results] == shapes


@pytest.mark.parametrize(
    ("operands", "params", "message"),
    [
        ([X], {"num_heads": 3}, "embed_dim is not divisible by the number of heads: found 8 by 3"),
        (
            [tensor(2, 5, 7)],
            {},
            "query, key and value are ambiguous: found [2, 5, 7] float32, expected 1 to 3 sequences of known widths",
        ),
        (
            [X, Y, tensor(2, 5, E)],
            {},
            "query, key and value do not fit: found [2, 5, 8], [2, 6, 8], [2, 5, 8], expected widths [8, 8, 8]",
        ),
        ([X], {"add_bias_kv": True}, "attribute 'bias_k' is missing: found add_bias_kv=True without it"),
        ([X], {"embed_dim": 4}, "attribute 'out_proj_weight' does not fit: found [8, 8], expected [4, 4]"),
    ],
)
def test_modules_that_do_not_fit_are_refused(operands: list[TensorSpec], params: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError) as caught:
        module(operands, **params).infer(operands)
    assert str(caught.value) == message


def test_operations_are_counted_as_two_a_multiply_add() -> None:
    projections, scores_and_sums = 4 * 2 * 5 * E * E, 2 * 2 * 5 * 5 * E
    assert module([X]).flops(X, [X]) == 2 * (projections + scores_and_sums)


@pytest.mark.parametrize(
    ("annotated", "found", "message"),
    [
        (tensor(5, 5), tensor(4, 5), "attention mask does not fit: found [4, 5], expected [5, 5] or [4, 5, 5]"),
        (tensor(2, 5), tensor(3, 5), "padding mask does not fit: found [3, 5], expected [2, 5]"),
    ],
)
def test_a_mask_of_another_shape_than_the_files_is_refused(
    annotated: TensorSpec, found: TensorSpec, message: str
) -> None:
    layer = module([X, annotated])
    with pytest.raises(EngineError) as inferred:
        layer.infer([X, found])
    with pytest.raises(EngineError) as run:
        layer.forward([zeros(X), zeros(found)])
    assert str(inferred.value) == str(run.value) == message


ENCODER = [
    tensor(24, 8),
    tensor(24),
    tensor(8, 8),
    *[tensor(8)] * 5,
    tensor(16, 8),
    tensor(16),
    tensor(8, 16),
    tensor(8),
]


@pytest.mark.parametrize(
    ("place", "spec", "message"),
    [
        (0, tensor(24, 7), "qkv_weight does not fit: found [24, 7], expected [24, 8]"),
        (9, tensor(15), "ffn_bias_1 does not fit: found [15], expected [16]"),
        (10, tensor(8, 15), "ffn_weight_2 does not fit: found [8, 15], expected [8, 16]"),
        (12, tensor(5, 4), "mask does not fit: found [5, 4], expected [2, 5]"),
    ],
)
def test_operands_of_a_fused_encoder_layer_that_do_not_fit_are_refused(
    place: int, spec: TensorSpec, message: str
) -> None:
    weights = [*ENCODER, tensor(2, 5, dtype="bool")]
    weights[place] = spec
    operands = [tensor(2, 5, 8), 8, 2, *weights[:4], False, False, 1e-5, *weights[4:], 1]
    assert refusal("aten::_transformer_encoder_layer_fwd", *operands) == message


def test_heads_that_serve_several_may_have_a_batch_of_their_own() -> None:
    layer = build("F.scaled_dot_product_attention", 3, enable_gqa=True)
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=shape).astype(np.float32) for shape in ((1, 4, 3, 5), (2, 2, 6, 5), (2, 2, 6, 5)))
    each = [layer.forward([q, k[i : i + 1], v[i : i + 1]]) for i in range(2)]
    np.testing.assert_allclose(layer.forward([q, k, v]), np.concatenate(each), rtol=1e-6)
