"""Parts of a concatenation whose place there is in several pieces: kernels compute them elsewhere, copies join them."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Session, TensorSpec
from engine.pnnx import Operator
from engine.tensor import Array
from tests.engine.graph.build import built, op

RANDOM = np.random.default_rng(37)
TABLE = RANDOM.standard_normal((7, 6)).astype(np.float32)
PARTS = [
    op("nn.Linear", "it", "0", "2", in_features=6, out_features=7, bias=False, weight=TABLE),
    op("nn.Embedding", "it", "0", "2", num_embeddings=7, embedding_dim=6, sparse=False, weight=TABLE),
    op("F.layer_norm", "it", "0", "2", normalized_shape=(6,)),
    op("F.softmax", "it", "0", "2", dim=-1),
    op("torch.cumsum", "it", "0", "2", dim=1),
    op("torch.cumsum", "it", "0", "2", dim=2),
]


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("part", PARTS, ids=lambda op: f"{op.type}_{op.params.get('dim')}")
def test_a_part_of_several_items_is_computed_by_its_kernel(part: Operator, dim: int) -> None:
    x: Array = RANDOM.standard_normal((4, 3, 6)).astype(np.float32)
    x = RANDOM.integers(0, 7, (4, 3)) if part.type == "nn.Embedding" else x
    sizes = [4, 3, 7 if part.type == "nn.Linear" else 6]
    sizes[dim] = 5
    y = RANDOM.standard_normal(sizes).astype(np.float32)
    operators = [
        op("pnnx.Input", "in_0", "", "0"),
        op("pnnx.Input", "in_1", "", "1"),
        part,
        op("F.relu", "relu", "1", "3"),
        op("torch.cat", "cat", "2 3", "4", dim=dim),
        op("pnnx.Output", "out", "4"),
    ]
    net = built(*operators, _0=TensorSpec(x.shape, x.dtype), _1=y.shape)
    session = Session(net, backend="compiled", cache=None)
    wanted = Session(net, backend="reference").run([x, y])
    np.testing.assert_allclose(session.run([x, y])[0], wanted[0], rtol=1e-5, atol=1e-5)
    assert not [row["why"] for row in session.describe()["operators"] if row.get("why")]


def test_indices_of_a_table_may_lie_anywhere_or_follow_from_shapes() -> None:
    table = {"num_embeddings": 7, "embedding_dim": 6, "sparse": False, "weight": TABLE}
    net = built(
        op("pnnx.Input", "in_0", "", "0"),
        op("torch.transpose", "turned", "0", "1", dim0=0, dim1=1),
        op("nn.Embedding", "words", "1", "2", **table),
        op("pnnx.Expression", "length", "0", "3", expr="size(@0,0)"),
        op("torch.arange", "places", "3", "4", labels=("end",), dtype=None),
        op("nn.Embedding", "where", "4", "5", **table),
        op("pnnx.Expression", "sum", "2 5", "6", expr="add(@0,@1)"),
        op("pnnx.Output", "out", "6"),
        _0=TensorSpec((None, None), np.dtype(np.int64)),
    )
    session = Session(net, backend="compiled", cache=None)
    for sizes in ((7, 1), (1, 4), (5, 3)):
        x = RANDOM.integers(0, 7, sizes)
        np.testing.assert_allclose(session.run([x])[0], TABLE[x.T] + TABLE[: len(x)])
    rows = session.run([x], profile=True).profile or ()
    assert not [row["name"] for row in rows if row["kernel"] == "reference"]
