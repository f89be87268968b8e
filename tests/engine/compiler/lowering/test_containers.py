"""Lists of computed values: kernels read the items, and users of the list itself still get it."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Session, TensorSpec
from engine.pnnx import Operator
from tests.engine.graph.build import built, op

RANDOM = np.random.default_rng(31)
X = RANDOM.standard_normal((4, 5, 6)).astype(np.float32)
FIRST = RANDOM.integers(0, 4, 7)
SECOND = RANDOM.integers(0, 5, 7)
LISTS = [
    op("pnnx.Expression", "list", "1 2", "3", expr="[@0,@1]"),
    op("prim::ListConstruct", "list", "1 2", "3"),
]
INDEX = op("Tensor.index", "it", "0 3", "4")


def _session(made: Operator, *others: Operator, returned: str = "4") -> Session:
    ports = [op("pnnx.Input", f"in_{k}", "", str(k)) for k in range(3)]
    specs = {f"_{k}": TensorSpec(each.shape, each.dtype) for k, each in enumerate((X, FIRST, SECOND))}
    ends = [op("pnnx.Output", f"out_{name}", name) for name in returned.split()]
    return Session(built(*ports, made, INDEX, *others, *ends, **specs), cache=None)


def _left(session: Session) -> list[str]:
    """Operators that run on the reference."""
    return [row["name"] for row in session.describe()["operators"] if row.get("kernel") == "reference"]


@pytest.mark.parametrize("made", LISTS, ids=lambda op: op.type)
def test_a_list_of_indices_for_a_kernel_has_no_step(made: Operator) -> None:
    session = _session(made)
    np.testing.assert_array_equal(session.run([X, FIRST, SECOND])[0], X[FIRST, SECOND])
    assert _left(session) == []


@pytest.mark.parametrize("made", LISTS, ids=lambda op: op.type)
def test_a_list_that_a_reference_layer_reads_is_made(made: Operator) -> None:
    session = _session(made, op("aten::pad_sequence", "product", "3", "5"), returned="4 5")
    mine, beside = session.run([X, FIRST, SECOND])
    np.testing.assert_array_equal(mine, X[FIRST, SECOND])
    np.testing.assert_array_equal(beside, np.stack([FIRST, SECOND], 1))
    assert _left(session) == ["list", "product"]
