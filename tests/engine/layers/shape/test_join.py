"""Joining and cutting: what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Annotations, TensorSpec, registry
from engine.errors import ParameterError, ShapeError
from engine.layers import bind
from tests.engine.layers.refusals import build, refusal, tensor

X = tensor(2, 3, 4)
V = tensor(5)
S = tensor()
M = tensor(3, 4)

REFUSALS: list[tuple[str, tuple[object, ...], dict[str, Any], str]] = [
    # join
    ("torch.cat", (), {}, "no tensors to join: found no tensor, expected at least one"),
    (
        "torch.cat",
        (X, M),
        {},
        "shapes cannot be joined: found [2, 3, 4] and [3, 4], expected equal dimensions except dim 0",
    ),
    (
        "torch.cat",
        (X, tensor(2, 3, 5)),
        {"dim": 1},
        "shapes cannot be joined: found [2, 3, 4] and [2, 3, 5], expected equal dimensions except dim 1",
    ),
    ("torch.cat", (X, X), {"dim": 3}, "dim is out of range: found 3, expected -3 to 2"),
    ("torch.cat", (S, S), {}, "0-dim tensors cannot be joined: found [], expected at least one dimension"),
    ("torch.stack", (X, M), {}, "only equal shapes can be stacked: found [2, 3, 4] and [3, 4]"),
    ("torch.stack", (X, X), {"dim": 4}, "dim is out of range: found 4, expected -4 to 3"),
    ("aten::cartesian_prod", ([M, V],), {}, "only vectors can be combined: found [3, 4], expected [n]"),
    ("aten::block_diag", ([X],), {}, "only matrices can be blocks: found [2, 3, 4], expected at most 2 dimensions"),
    (
        "aten::pad_sequence",
        ([X, M],),
        {},
        "only sequences of one rank and dtype can be padded: found [2, 3, 4] float32, [3, 4] float32",
    ),
    ("aten::pad_sequence", ([S],), {}, "only sequences of one rank and dtype can be padded: found [] float32"),
    ("aten::pad_sequence", ([M, tensor(2, 5)],), {}, "only equal shapes can be stacked: found [4] and [5]"),
    ("aten::pad_sequence", ([],), {}, "no tensors to join: found no tensor, expected at least one"),
    (
        "aten::pad_sequence",
        ([M], False, 0.0, "middle"),
        {},
        "unknown padding_side: found middle, expected left or right",
    ),
    (
        "aten::broadcast_tensors",
        ([X, V],),
        {},
        "shapes do not broadcast: found [2, 3, 4] and [5], expected each dimension equal or 1, counted from the last",
    ),
    # split
    (
        "torch.split",
        (X,),
        {"split_size_or_sections": (1, 1), "dim": 1},
        "sections do not add up: found [1, 1], expected a sum of 3",
    ),
    (
        "torch.split",
        (X,),
        {"split_size_or_sections": (4, -1), "dim": 1},
        "sections must not be negative: found [4, -1]",
    ),
    ("torch.split", (X,), {"split_size_or_sections": -1}, "split size must be positive: found -1"),
    ("torch.split", (X,), {"split_size_or_sections": 0}, "split size must be positive: found 0"),
    ("torch.split", (S,), {"split_size_or_sections": 1}, "a 0-dim tensor has no axis to split"),
    ("torch.chunk", (X,), {"chunks": 0}, "chunks must be positive: found 0"),
    ("torch.chunk", (X,), {"chunks": 2, "dim": 3}, "dim is out of range: found 3, expected -3 to 2"),
    ("torch.tensor_split", (X,), {"sections": 0}, "sections must be positive: found 0"),
    ("torch.tensor_split", (X,), {}, "sections must be positive: found None"),
    ("aten::hsplit", (X, 2), {}, "the axis cannot be split evenly: found 3 by 2"),
    ("torch.unbind", (S,), {}, "a 0-dim tensor has no axis to split"),
]


@pytest.mark.parametrize(("type", "operands", "params", "message"), REFUSALS)
def test_what_does_not_fit_is_refused(
    type: str, operands: tuple[object, ...], params: dict[str, Any], message: str
) -> None:
    assert refusal(type, *operands, **params) == message


@pytest.mark.parametrize("type", ["torch.cat", "torch.stack"])
def test_a_list_operand_stands_for_its_items(type: str) -> None:
    a, b = np.ones((2, 3)), np.zeros((2, 3))
    layer = build(type, 1)
    np.testing.assert_array_equal(layer.forward([[a, b]]), build(type, 2).forward([a, b]))


def pieces(outputs: int, annotated: bool, **params: Any) -> Any:
    spec = TensorSpec((None, 4), np.dtype(np.float32)) if annotated else None
    annotations = Annotations(outputs=(spec,) * outputs)
    layer = bind(registry["torch.split"], n_inputs=1, params=params, attributes={}, annotations=annotations)
    return layer.forward([np.arange(24.0).reshape(6, 4)])


def test_one_output_without_annotation_is_the_list_of_pieces() -> None:
    assert [piece.shape for piece in pieces(1, False, split_size_or_sections=4)] == [(4, 4), (2, 4)]


def test_one_annotated_output_is_the_only_piece() -> None:
    assert pieces(1, True, split_size_or_sections=6).shape == (6, 4)


def test_another_number_of_pieces_than_outputs_is_refused() -> None:
    with pytest.raises(ShapeError) as caught:
        pieces(3, True, split_size_or_sections=4)
    assert str(caught.value) == "the number of pieces differs: found 2, expected 3"


def test_without_sizes_there_is_an_equal_piece_for_every_output() -> None:
    assert [piece.shape for piece in pieces(3, True, split_size_or_sections=None)] == [(2, 4)] * 3
    assert [piece.shape for piece in pieces(4, True, split_size_or_sections=None)] == [(2, 4)] * 3 + [(0, 4)]
    with pytest.raises(ParameterError, match="without sizes"):
        pieces(1, False, split_size_or_sections=None)
    with pytest.raises(ShapeError, match="into this many"):
        pieces(5, True, split_size_or_sections=None)
