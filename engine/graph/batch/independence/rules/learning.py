"""Rules of models of ONNX's ML domain, which treat every row of a table by itself."""

from __future__ import annotations

from engine.graph.batch.independence.rules.table import rule
from engine.graph.batch.independence.use import Use
from engine.graph.batch.independence.values import MixesError, Value
from engine.layers.onnx.learning import classes, trees, vectors


@rule(
    classes.ClassScores, classes.ClassLabel, trees.TreeEnsemble,
    vectors.VectorKernel, vectors.PairProbabilities,
)  # fmt: skip
def by_rows(use: Use) -> Value:
    """Follow each row of the first operand, with shared parameters."""
    if not all(each.is_shared for each in use.operands[1:]):
        raise MixesError("has weights or parameters that depend on the items")
    items, rank = use.batch(), use.first.rank
    if items.axis != 0 or rank not in (1, 2) or (rank == 1 and not isinstance(use.layer, classes.ClassLabel)):
        raise MixesError("works along the batch axis")
    return items
