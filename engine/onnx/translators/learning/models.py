"""Translators of linear models, support vector machines and feature preparation (``ai.onnx.ml``)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.errors import ParameterError, ShapeError, UnsupportedOperatorError
from engine.layers.onnx.learning.vectors import pairs
from engine.layers.operands.conversion import STRING
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.learning.classes import classified, label, labels_of_classes, named, step
from engine.onnx.translators.learning.forest import column
from engine.tensor import Array

_ML: Final = "ai.onnx.ml"
_KERNELS: Final = ("LINEAR", "POLY", "RBF", "SIGMOID")
_LEAST: Final = 1e-7
"""Lower bound of a pair's probability, as in LIBSVM; the upper bound is 1 minus it."""
_MOST: Final = 1 << 26
"""Maximum elements of the coefficient table of class pairs, zeros included."""


@translates("OneHotEncoder", domain=_ML)
def one_hot_encoder(node: Node) -> Value:
    """Compare each element, or the number of its category, with all of them; unknown elements are zeros, or refused."""
    x = node.input(0)
    numbers, texts = node.attributes.get("cats_int64s", ()), node.attributes.get("cats_strings", ())
    if bool(numbers) == bool(texts):
        raise ParameterError("no categories", found="both kinds or none", expected="cats_int64s or cats_strings")
    if x.dtype is not None and (x.dtype == STRING) != bool(texts):
        raise ShapeError("categories of another kind than the input", found=str(x.dtype))
    if x.dtype != np.int64 and not texts:
        x = node.make("Tensor.to", x, dtype="torch.long")
    categories, zeros = np.array(numbers or range(len(texts)), np.int64), bool(node.number("zeros", 1))
    if texts or not zeros:
        values = tuple(categories.tolist())
        params = {"keys": texts or numbers, "values": values, "default": -1, "must_have_key": not zeros}
        x = node.make("LabelEncoder", x, **params)
    is_category = node.make("torch.eq", node.make("torch.unsqueeze", x, dim=-1), node.constant(categories))
    return node.make("Tensor.to", is_category, dtype="torch.float")


@translates("FeatureVectorizer", domain=_ML)
def feature_vectorizer(node: Node) -> Value:
    """Concatenate tables by columns, each cut or padded with zeros to its number of columns."""
    widths, tables = node.numbers("inputdimensions"), []
    if len(widths) != len(node.inputs) or min(widths, default=0) < 0:
        found = f"{len(node.inputs)} inputs, {len(widths)} numbers of columns"
        raise ShapeError("inputdimensions do not fit the inputs", found=found)
    for k, width in enumerate(widths):
        x = _narrow(node, node.input(k))
        x = node.make("torch.unsqueeze", x, dim=1) if x.rank == 1 else x
        more = node.expression(f"[0,sub({width},size(@0,1))]", x)
        tables.append(node.make("F.pad", x, more, labels=("input", "pad"), mode="constant", value=0))
    return node.make("torch.cat", *tables, dim=1)


@translates("Normalizer", domain=_ML)
def normalizer(node: Node) -> Value:
    """Divide each row by its maximum, L1 norm or L2 norm, unless that is 0."""
    x, norm = _narrow(node, node.input(0)), node.text("norm", "MAX")
    if norm not in ("MAX", "L1", "L2"):
        raise ParameterError("no such norm", found=norm[:80], expected="MAX, L1 or L2")
    if norm == "MAX":
        size = node.make("torch.amax", x, dim=(-1,), keepdim=True, allow_empty=True)
    else:
        size = node.expression("abs(@0)" if norm == "L1" else "square(@0)", x)
        size = node.make("torch.sum", size, dim=(-1,), keepdim=True)
        size = size if norm == "L1" else node.expression("sqrt(@0)", size)
    is_zero = node.make("Tensor.to", node.make("torch.eq", size, other=0.0), dtype="torch.float")
    return node.expression("div(@0,add(@1,@2))", x, size, is_zero)


@translates("Imputer", domain=_ML)
def imputer(node: Node) -> Value:
    """Replace each missing element by the value of its column."""
    x = node.input(0)
    if x.dtype is None:
        raise UnsupportedOperatorError("the dtype of the features is not known before a run")
    kind = "float" if x.dtype.kind == "f" else "int64"
    values = column(node.attributes, f"imputed_value_{kind}s", kind="f" if kind == "float" else "i").astype(x.dtype)
    width = None if x.tensor is None or not x.rank else x.tensor.shape[-1]
    if len(values) not in (1, len(values) if width is None else width):
        raise ShapeError("no value for each column", found=len(values), expected=f"1 or {width}, of its dtype")
    missing = node.attributes.get(f"replaced_value_{kind}", 0)
    is_missing = node.make("torch.isnan", x) if missing != missing else node.make("torch.eq", x, other=missing)
    return node.make("torch.where", is_missing, node.constant(values), x)


@translates("Scaler", domain=_ML)
def scaler(node: Node) -> Value:
    """Compute (x - offset) * scale, in float64 for float64 inputs, and return float32."""
    x = node.input(0)
    if x.dtype != np.float64:
        x = _narrow(node, x)
    offset, scale = (column(node.attributes, name, kind="f") for name in ("offset", "scale"))
    for name, array in (("offset", offset), ("scale", scale)):
        width = None if x.tensor is None or not x.rank else x.tensor.shape[-1]
        if len(array) < 1 or (width is not None and len(array) not in (1, width)):
            raise ParameterError(f"{name} does not fit the features", found=len(array), expected=f"1 or {width}")
    dtype = x.dtype or np.dtype(np.float32)
    shifted = node.expression("sub(@0,@1)", x, node.constant(offset.astype(dtype)))
    return _narrow(node, node.expression("mul(@0,@1)", shifted, node.constant(scale.astype(dtype))))


@translates("LinearRegressor", domain=_ML)
def linear_regressor(node: Node) -> Value:
    """Translate to nn.Linear."""
    targets = node.number("targets", 1)
    scores = _linear(node, "intercepts", targets)
    transform = node.text("post_transform", "NONE")
    return scores if targets == 1 and transform != "PROBIT" else step(node, scores, transform)


@translates("LinearClassifier", domain=_ML)
def linear_classifier(node: Node) -> list[Value]:
    """Translate to nn.Linear and the label of the highest score."""
    labels = labels_of_classes(node, "classlabels_ints")
    rows = len(column(node.attributes, "intercepts", kind="f")) or len(labels)
    scores = _linear(node, "intercepts", rows)
    if rows == 1 and len(labels) == 2:
        return classified(node, scores, labels, 0.0, "complement")
    return classified(node, scores, labels)


def _linear(node: Node, intercepts: str, rows: int) -> Value:
    coefficients = column(node.attributes, "coefficients", kind="f").astype(np.float32)
    bias = column(node.attributes, intercepts, kind="f").astype(np.float32)
    if rows < 1 or not len(coefficients) or len(coefficients) % rows or len(bias) not in (0, rows):
        found = f"{len(coefficients):,} coefficients and {len(bias):,} intercepts"
        raise ParameterError("coefficients do not fit", found=found, expected=f"those of {rows:,}")
    bias = bias if len(bias) else np.zeros(rows, np.float32)
    return _product(node, _rows(node), coefficients.reshape(rows, -1), bias)


def _product(node: Node, x: Value, weight: Array, bias: Array) -> Value:
    outputs, inputs = weight.shape
    weights = {"weight": weight, "bias": bias}
    return node.make("nn.Linear", x, weights=weights, bias=True, in_features=inputs, out_features=outputs)


def _rows(node: Node) -> Value:
    """Return the features as float32 with two axes; a vector becomes one row."""
    x = _narrow(node, node.input(0))
    if x.rank == 1:
        return node.make("torch.unsqueeze", x, dim=0)
    if x.rank is None:
        return node.make("aten::atleast_2d", x)
    if x.rank == 2:
        return x
    raise ShapeError("no table of features", found=f"{x.rank} dimensions", expected="[N, F] or [F]")


def _narrow(node: Node, x: Value) -> Value:
    return x if x.dtype == np.float32 else node.make("Tensor.to", x, dtype="torch.float")


@translates("SVMRegressor", domain=_ML)
def vector_regressor(node: Node) -> Value:
    """Translate to the kernel of the support vectors and nn.Linear."""
    count = node.number("n_supports", 0)
    coefficients, rho = _coefficients(node)
    near = _near(node, count) if count else _rows(node)
    scores = _product(node, near, coefficients.reshape(1, -1), rho[:1])
    if node.number("one_class", 0):
        return node.expression("sub(mul(maximum(sign(@0),0),2),1)", scores)  # 1 on one side, -1 on the other
    transform = node.text("post_transform", "NONE")
    return step(node, scores, transform) if transform == "PROBIT" else scores


@translates("SVMClassifier", domain=_ML)
def vector_classifier(node: Node) -> list[Value]:
    """Translate to the kernel of the support vectors, a decision for each pair of classes, and their votes."""
    labels = labels_of_classes(node, "classlabels_ints")
    coefficients, rho = _coefficients(node)
    counts = column(node.attributes, "vectors_per_class")
    if not int(counts.sum()):
        return _plain_vectors(node, labels, coefficients, rho)
    if len(counts) != len(labels) or int(counts.min()) < 0 or len(labels) < 2:
        raise ParameterError("vectors_per_class do not fit the classes", found=len(counts), expected=len(labels))
    near = _near(node, int(counts.sum()))
    weight = _pair_weights(coefficients, counts)
    if len(rho) != len(weight):
        raise ParameterError("rho does not fit the classes", found=len(rho), expected=len(weight))
    decisions = _product(node, near, weight, rho)
    return [label(node, _votes(node, decisions, len(labels)), labels), _vector_scores(node, decisions, len(labels))]


def _votes(node: Node, decisions: Value, classes: int) -> Value:
    """Count the pairs that each class wins: of pair (i, j), i < j, class i if the decision is above 0, else class j."""
    wins = np.zeros((classes, classes * (classes - 1) // 2), np.float32)
    losses = np.zeros_like(wins)
    for pair, (i, j) in enumerate(pairs(classes)):
        wins[i, pair] = losses[j, pair] = 1
    is_first = node.make("Tensor.to", node.make("torch.gt", decisions, other=0.0), dtype="torch.float")
    return _product(node, is_first, wins - losses, losses.sum(1))


def _vector_scores(node: Node, decisions: Value, classes: int) -> Value:
    transform = node.text("post_transform", "NONE")
    a, b = (column(node.attributes, name, kind="f").astype(np.float32) for name in ("prob_a", "prob_b"))
    if len(a):
        count = classes * (classes - 1) // 2
        if len(a) != count or len(b) != count:
            raise ParameterError("prob_a and prob_b do not fit", found=f"{len(a)} and {len(b)}", expected=count)
        wide = named(node, 1, "Tensor.to", decisions, dtype="torch.double")
        constants = (node.constant(each.astype(np.float64)) for each in (a, b))
        text = "reciprocal(add(exp(add(mul(@0,@1),@2)),1.0))"
        wins = named(node, 1, "pnnx.Expression", wide, *constants, expr=text)
        wins = named(node, 1, "torch.clamp", wins, min=_LEAST, max=1 - _LEAST)
        return step(node, named(node, 1, "onnx.PairProbabilities", wins, classes=classes), transform, 1)
    other = "" if classes > 2 else "negative" if transform == "NONE" else "complement"
    return step(node, decisions, transform, 1, other)


def _plain_vectors(node: Node, labels: tuple[Any, ...], coefficients: Array, rho: Array) -> list[Value]:
    if len(coefficients) % len(labels):
        raise ParameterError("coefficients do not fit", found=len(coefficients), expected=f"{len(labels)} classes")
    bias = np.full(len(labels), rho[0], np.float32)
    return classified(node, _product(node, _rows(node), coefficients.reshape(len(labels), -1), bias), labels)


def _coefficients(node: Node) -> tuple[Array, Array]:
    coefficients, rho = (column(node.attributes, name, kind="f").astype(np.float32) for name in ("coefficients", "rho"))
    if not len(coefficients) or not len(rho):
        raise ParameterError("coefficients or rho are missing", found=f"{len(coefficients)} and {len(rho)}")
    return coefficients, rho


def _near(node: Node, count: int) -> Value:
    """Read the support vectors and compute the kernel of each row with each of them."""
    vectors = column(node.attributes, "support_vectors", kind="f").astype(np.float32)
    kernel = node.text("kernel_type", "LINEAR")
    params = column(node.attributes, "kernel_params", kind="f").tolist() or [0.0, 0.0, 0.0]
    if count < 1 or not len(vectors) or len(vectors) % count:
        raise ParameterError(
            "support_vectors do not fit", found=f"{len(vectors):,} numbers", expected=f"{count:,} rows"
        )
    if kernel not in _KERNELS or len(params) != 3:
        raise ParameterError("no such kernel", found=f"{kernel[:80]} of {len(params)}", expected=", ".join(_KERNELS))
    return _kernel(node, kernel, vectors.reshape(count, -1), *params)


def _kernel(node: Node, kernel: str, vectors: Array, gamma: float, coef0: float, degree: float) -> Value:
    """Compute the kernel of each row with each vector."""
    x = _rows(node)
    if kernel == "RBF":  # from differences: |x|² - 2 x·v + |v|² cancels for close points
        distance = node.make("aten::cdist", x, node.constant(vectors), p=2.0, compute_mode=2)
        return node.expression(f"exp(mul(square(@0),{-gamma!r}))", distance)
    product = _product(node, x, vectors, np.zeros(len(vectors), np.float32))
    if kernel == "LINEAR":
        return product
    scaled = f"add(mul(@0,{gamma!r}),{coef0!r})"
    return node.expression(f"tanh({scaled})" if kernel == "SIGMOID" else f"pow({scaled},{degree!r})", product)


def _pair_weights(coefficients: Array, counts: Array) -> Array:
    """Return the weight of each vector in the decision of each pair: 0 unless its class is one of the two."""
    total, ends = int(counts.sum()), [0, *np.cumsum(counts).tolist()]
    classes = len(counts)
    if len(coefficients) != total * (classes - 1):
        raise ParameterError("coefficients do not fit", found=len(coefficients), expected=total * (classes - 1))
    if classes * (classes - 1) // 2 * total > _MOST:
        raise ParameterError("too many pairs of classes", found=f"{classes:,} classes, {total:,} vectors")
    table = coefficients.reshape(classes - 1, total)
    weight = np.zeros((classes * (classes - 1) // 2, total), np.float32)
    for pair, (i, j) in enumerate(pairs(classes)):
        weight[pair, ends[i] : ends[i + 1]] = table[j - 1, ends[i] : ends[i + 1]]
        weight[pair, ends[j] : ends[j + 1]] = table[i, ends[j] : ends[j + 1]]
    return weight


@translates("CategoryMapper", domain=_ML)
def category_mapper(node: Node) -> Value | None:
    """Translate to LabelEncoder, from strings to integers or from integers to strings."""
    texts, numbers = node.attributes.get("cats_strings", ()), node.numbers("cats_int64s")
    if len(texts) != len(numbers):
        raise ParameterError("categories do not fit", found=f"{len(texts)} texts and {len(numbers)} integers")
    dtype = node.dtype()
    if dtype is None:
        return None
    if dtype == STRING:
        params: dict[str, Any] = {"keys": texts, "values": numbers, "default": node.number("default_int64", -1)}
    else:
        params = {"keys": numbers, "values": texts, "default": node.text("default_string", "_Unused")}
    return node.make("LabelEncoder", node.input(0), **params)


@translates("ZipMap", domain=_ML)
def zip_map(node: Node) -> Value:
    """Return the scores unchanged and make their names the model's labels."""
    integers = "classlabels_int64s" if "classlabels_int64s" in node.attributes else "classlabels_ints"
    labels = labels_of_classes(node, integers)
    scores = node.input(0)
    width = None if scores.tensor is None or scores.rank != 2 else scores.tensor.shape[1]
    if width is not None and width != len(labels):
        raise ParameterError("another number of labels", found=len(labels), expected=f"{width}, as there are scores")
    return scores
