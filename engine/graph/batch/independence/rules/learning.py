"""Rules of models of ONNX's ML domain, which treat every row of a table by itself."""

from __future__ import annotations

from engine.graph.batch.independence.rules.table import rule
from engine.graph.batch.independence.use import Use
from engine.graph.batch.independence.values import Items, MixesError, Value
from engine.layers.onnx.control.text import ArrayFeatureExtractor
from engine.layers.onnx.learning import classes, features, trees, vectors


@rule(
    classes.ClassScores, classes.ClassLabel, features.Normalizer, features.Imputer, trees.TreeEnsemble,
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


@rule(features.OneHotEncoder)
def one_hot(use: Use) -> Value:
    """Follow a new last axis for the categories."""
    return use.batch()


@rule(features.FeatureVectorizer)
def vectorised(use: Use) -> Value:
    """Follow tables joined along their columns."""
    if any(each.value != Items(0) or each.rank != 2 for each in use.operands):
        raise MixesError("concatenates tensors with a batch and tensors without")
    return Items(0)


@rule(ArrayFeatureExtractor)
def extracted(use: Use) -> Value:
    """Follow columns at shared positions."""
    use.only("input")
    items = use.batch("input")
    if items.axis == use["input"].rank - 1 or use["input"].rank < 2:
        raise MixesError("selects an item of the batch")
    return items
