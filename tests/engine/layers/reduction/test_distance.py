"""Distances: what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.layers.refusals import refusal, tensor

BROADCAST = ", expected each dimension equal or 1, counted from the last"


@pytest.mark.parametrize(
    ("type", "operands", "params", "message"),
    [
        (
            "F.pairwise_distance",
            [tensor(2, 3), tensor(4, 3)],
            {},
            "shapes do not broadcast: found [2, 3] and [4, 3]" + BROADCAST,
        ),
        ("F.pairwise_distance", [tensor(), tensor()], {}, "a distance needs vectors: found 0-dim tensors"),
        (
            "aten::cosine_similarity",
            [tensor(3), tensor(3)],
            {"dim": 1},
            "dim is out of range: found 1, expected -1 to 0",
        ),
        (
            "aten::cdist",
            [tensor(2, 3), tensor(2, 4)],
            {},
            "rows cannot be compared: found [2, 3] and [2, 4], expected rank 2 or more and equal row lengths",
        ),
        ("aten::cdist", [tensor(2, 3), tensor(2, 3)], {"p": -1.0}, "p must not be negative: found -1.0"),
        ("aten::pdist", [tensor(2, 3, 4)], {}, "rank does not fit: found [2, 3, 4], expected [N, M]"),
    ],
)
def test_what_does_not_fit_is_refused(type: str, operands: list[Any], params: dict[str, Any], message: str) -> None:
    assert refusal(type, *operands, **params) == message
