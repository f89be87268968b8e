"""Models of ONNX's machine learning domain: trees, support vectors, linear ones, and what prepares their features."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.compiler.lowering.rules.learning import trees as trees_rule
from engine.errors import EngineError
from tests.engine.onnx_files.models import expected, model, node, save, value

FLOAT, INT64, STRING, DOUBLE = 1, 7, 8, 11
ML = "ai.onnx.ml"
KINDS = {np.dtype(np.float32): FLOAT, np.dtype(np.float64): DOUBLE, np.dtype(np.int64): INT64, np.dtype(object): STRING}


def learned(type: str, feeds: dict[str, Any], outputs: Sequence[int] = (FLOAT,), version: int = 3, **given: Any) -> Any:
    names = [f"y{k}" for k in range(len(outputs))]
    inputs = [value(name, each.shape, KINDS[each.dtype]) for name, each in feeds.items()]
    made = node(type, list(feeds), names, domain=ML, **given)
    proto = model([made], inputs, [value(*each) for each in zip(names, [None] * len(names), outputs, strict=True)])
    version_of = proto.opset_import.add()
    version_of.domain, version_of.version = ML, version
    return proto


def ran(folder: Path, proto: Any, feeds: dict[str, Any]) -> list[Any]:
    """Return the answers of the reference, once machine code, where there is some, has given the same."""
    graph = engine.load(save(folder, proto))
    answers = engine.Session(graph, backend="reference").run(feeds)
    session = engine.Session(graph, backend="compiled", threads=1, cache=None)
    with closing(session), suppress(engine.CompileError):
        for mine, its in zip(session.run(feeds), answers, strict=True):
            assert (mine.shape, mine.dtype) == (its.shape, its.dtype)
            if its.dtype.kind == "f":
                np.testing.assert_allclose(mine, its, rtol=1e-5, atol=1e-6)
            else:
                np.testing.assert_array_equal(mine, its)
    return answers


def check(folder: Path, proto: Any, feeds: dict[str, Any], wanted: Sequence[Any] | None = None) -> None:
    found = ran(folder, proto, feeds)
    wanted = expected(proto, feeds) if wanted is None else wanted
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, map(np.asarray, wanted), strict=True):
        assert mine.shape == theirs.shape
        if theirs.dtype.kind in "OUi":
            np.testing.assert_array_equal(mine, theirs)
        else:
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


MODES = ("BRANCH_LEQ", "BRANCH_GT", "BRANCH_EQ")


def random_nodes(
    random: Any, trees: int, features: int, modes: Sequence[str] = MODES, depth: int = 5
) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Nodes of trees of any shape, in the order of a walk; and their leaves."""
    rows: list[Any] = []

    def grow(tree: int, first: int, depth: int) -> int:
        place = len(rows)
        rows.append((tree, place - first, 0, 0.0, "LEAF", 0, 0, 0))
        if depth and random.random() < 0.85:
            split, mode = (
                float(np.float32(random.normal())),
                str(random.choice(list(modes))),
            )
            children = [grow(tree, first, depth - 1) - first for _ in range(2)]
            rows[place] = (tree, place - first, int(random.integers(features)), split, mode, *children, 1)
        return place

    for tree in range(trees):
        grow(tree, len(rows), depth)
    names = ["treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids"]
    names.append("missing_value_tracks_true")
    lists = {f"nodes_{name}": list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    return lists, [(row[0], row[1]) for row in rows if row[4] == "LEAF"]


def leaf_lists(random: Any, leaves: Sequence[tuple[int, int]], kind: str, count: int) -> dict[str, Any]:
    rows = [(tree, own, k, float(np.float32(random.normal()))) for tree, own in leaves for k in range(count)]
    columns = zip(*rows, strict=True)
    return {
        f"{kind}_{name}": list(each)
        for name, each in zip(("treeids", "nodeids", "ids", "weights"), columns, strict=True)
    }


@pytest.mark.parametrize("mode", ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"])
@pytest.mark.parametrize(
    ("trees", "targets", "aggregate"), [(1, 1, "SUM"), (8, 3, "AVERAGE"), (19, 1, "SUM"), (9, 20, "SUM")]
)
def test_trees_of_one_comparison_have_a_kernel(
    tmp_path: Path, mode: str, trees: int, targets: int, aggregate: str
) -> None:
    random = np.random.default_rng(trees)
    nodes, leaves = random_nodes(random, trees, 4, [f"BRANCH_{mode}"])
    leaf = leaf_lists(random, leaves, "target", targets)
    x = random.normal(size=(67, 4)).astype(np.float32)
    splits = np.array(nodes["nodes_values"], np.float32)
    x[::3, 1] = random.choice(splits, len(x[::3]))  # on the edge
    x[::5, 2], x[1::7, 3], x[2::7, 0] = np.nan, np.inf, -np.inf
    given = {**nodes, **leaf, "n_targets": targets, "aggregate_function": aggregate, "base_values": [0.5] * targets}
    proto = learned("TreeEnsembleRegressor", {"x": x}, **given)
    check(tmp_path, proto, {"x": x})
    session = engine.Session(engine.load(save(tmp_path, proto)), backend="compiled", threads=1, cache=None)
    with closing(session):
        session.run([x])
        assert "trees" in {row.get("kernel") for row in session.describe()["operators"]}
        reference = engine.Session(session.graph, backend="reference")
        for rows in (67, 1, 0, 7, 64):
            np.testing.assert_allclose(session.run([x[:rows]])[0], reference.run([x[:rows]])[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("columns", [trees_rule._MAX_COLUMNS, 3])
@pytest.mark.parametrize(("trees", "rows"), [(2, 40), (11, 5), (11, 33)])
def test_trees_with_more_leaves_than_first_exits_are_walked_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trees: int, rows: int, columns: int
) -> None:
    """With ``columns`` below the number of features, trees are walked from their roots."""
    monkeypatch.setattr(trees_rule, "_MAX_COLUMNS", columns)
    random = np.random.default_rng(trees)
    nodes, leaves = random_nodes(random, trees, 4, ["BRANCH_LEQ"], depth=9)
    assert len(leaves) > 40 * trees
    x = random.normal(size=(rows, 4)).astype(np.float32)
    x[::5, 2] = np.nan
    proto = learned("TreeEnsembleRegressor", {"x": x}, **nodes, **leaf_lists(random, leaves, "target", 1), n_targets=1)
    check(tmp_path, proto, {"x": x})
    with closing(
        engine.Session(engine.load(save(tmp_path, proto)), backend="compiled", threads=2, cache=None)
    ) as session:
        found = session.run([x])[0]
        expected = engine.Session(session.graph, backend="reference").run([x])[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_random_trees_regress_as_the_reference_does(tmp_path: Path, aggregate: str) -> None:
    random = np.random.default_rng(len(aggregate))
    nodes, leaves = random_nodes(random, 7, 3)
    given = {**nodes, **leaf_lists(random, leaves, "target", 2), "n_targets": 2, "base_values": [0.5, -1.0]}
    feeds = {"x": random.normal(size=(20, 3)).astype(np.float32)}
    check(tmp_path, learned("TreeEnsembleRegressor", feeds, aggregate_function=aggregate, **given), feeds)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_random_trees_classify_as_the_reference_does(tmp_path: Path, transform: str) -> None:
    random = np.random.default_rng(len(transform))
    nodes, leaves = random_nodes(random, 5, 4)
    given = {**nodes, **leaf_lists(random, leaves, "class", 3), "classlabels_strings": ["a", "ß", "c d"]}
    feeds = {"x": random.normal(size=(20, 4)).astype(np.float32)}
    check(tmp_path, learned("TreeEnsembleClassifier", feeds, (STRING, FLOAT), post_transform=transform, **given), feeds)


STUMP: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
    "target_weights": [10.0, 20.0],
}  # fmt: skip


def test_nan_goes_where_its_node_says(tmp_path: Path) -> None:
    feeds = {"x": np.array([[0, 0.5], [0, np.nan], [np.nan, 0.6]], np.float32)}
    check(tmp_path, learned("TreeEnsembleRegressor", feeds, **STUMP), feeds, [[[10.0], [20.0], [20.0]]])
    tracked = {**STUMP, "nodes_missing_value_tracks_true": [1, 0, 0]}
    check(tmp_path, learned("TreeEnsembleRegressor", feeds, **tracked), feeds, [[[10.0], [10.0], [20.0]]])


@pytest.mark.parametrize(("weights", "transform", "labels", "scores"), [
    ([0.3, 0.7], "NONE", [4, 9], [[0.7, 0.3], [0.3, 0.7]]),
    ([-0.3, 0.7], "NONE", [4, 9], [[0.3, -0.3], [-0.7, 0.7]]),
    ([-0.3, 0.7], "LOGISTIC", [4, 9], [[0.574443, 0.425557], [0.331812, 0.668188]]),
])  # fmt: skip
def test_of_two_classes_the_leaves_may_speak_of_one(
    tmp_path: Path, weights: list[float], transform: str, labels: list[int], scores: list[list[float]]
) -> None:
    """Compare with onnxruntime's results."""
    given = {key.replace("target", "class"): each for key, each in STUMP.items()} | {"class_weights": weights}
    feeds = {"x": np.array([[0, 0], [0, 1]], np.float32)}
    given |= {"post_transform": transform, "classlabels_int64s": [4, 9]}
    proto = learned("TreeEnsembleClassifier", feeds, (INT64, FLOAT), **given)
    check(tmp_path, proto, feeds, [np.array(labels), scores])


def test_double_features_are_compared_as_such(tmp_path: Path) -> None:
    feeds = {"x": np.array([[0, 0.5 + 1e-12], [0, 0.5]])}
    check(tmp_path, learned("TreeEnsembleRegressor", feeds, **STUMP), feeds, [[[20.0], [10.0]]])


@pytest.mark.parametrize(("changes", "said"), [
    ({"nodes_truenodeids": [0, 0, 0]}, "among its own children"),
    ({"nodes_falsenodeids": [1, 0, 0]}, "a leaf twice"),
    ({"nodes_falsenodeids": [7, 0, 0]}, "no such node"),
    ({"nodes_falsenodeids": [-1, 0, 0]}, "no such node"),
    ({"nodes_nodeids": [0, 1, 1]}, "there twice"),
    ({"nodes_values": [0.5]}, "not equally long"),
    ({"nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAVE"]}, "no such mode"),
    ({"nodes_treeids": [0, 1, 0]}, "no such node"),
    ({"target_nodeids": [1, 5]}, "no such node"),
    ({"target_ids": [0, 1]}, "no such target"),
    ({"target_ids": [0, -1]}, "no such target"),
    ({"n_targets": 2**40}, "too large"),
    ({"n_targets": 0}, "no such target"),
    ({"nodes_featureids": [-3, 0, 0]}, "no such feature"),
    ({"nodes_featureids": [2, 0, 0]}, "too few features"),
    ({"nodes_featureids": [2**62, 0, 0]}, "too few features"),
    ({"aggregate_function": "MEDIAN"}, "aggregate_function"),
    ({"base_values": [1.0, 2.0]}, "base_values"),
])  # fmt: skip
def test_trees_that_contradict_themselves_are_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    feeds = {"x": np.zeros((2, 2), np.float32)}
    proto = learned("TreeEnsembleRegressor", feeds, **{**STUMP, **changes})
    if said == "a leaf twice":  # two ways to a leaf are no way back
        check(tmp_path, proto, feeds, [[[10.0], [10.0]]])
        return
    with pytest.raises(EngineError, match=said):
        ran(tmp_path, proto, feeds)


def test_a_ring_of_nodes_is_refused_whichever_way_it_is_written(tmp_path: Path) -> None:
    tensor = __import__("onnx").numpy_helper.from_array
    given = {
        "tree_roots": [0], "nodes_featureids": [0, 0], "nodes_modes": tensor(np.zeros(2, np.uint8)),
        "nodes_splits": tensor(np.zeros(2, np.float32)), "nodes_truenodeids": [1, 0], "nodes_trueleafs": [0, 0],
        "nodes_falsenodeids": [0, 0], "nodes_falseleafs": [1, 1], "leaf_targetids": [0],
        "leaf_weights": tensor(np.ones(1, np.float32)), "n_targets": 1,
    }  # fmt: skip
    feeds = {"x": np.zeros((2, 1), np.float32)}
    for changes in ({}, {"nodes_truenodeids": [5, 0]}, {"tree_roots": [9]}, {"leaf_targetids": [3]}):
        with pytest.raises(EngineError, match="among its own children|no such"):
            ran(tmp_path, learned("TreeEnsemble", feeds, version=5, **{**given, **changes}), feeds)


VECTORS: dict[str, Any] = {
    "coefficients": [0.5, -1.0, 0.25, 1.0, -0.5, -0.75, 0.1, 0.2], "kernel_type": "RBF",
    "kernel_params": [0.3, 0.0, 3.0],
    "support_vectors": [0.0, 1.0, 2.0, -1.0, 0.5, 0.5, 1.0, 1.5],
}  # fmt: skip


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors_vote_as_the_reference_says(tmp_path: Path, kernel: str) -> None:
    feeds = {"x": np.random.default_rng(1).normal(size=(9, 2)).astype(np.float32)}
    given = {**VECTORS, "kernel_type": kernel, "rho": [0.1, -0.2, 0.05], "vectors_per_class": [1, 2, 1]}
    given |= {"classlabels_ints": [5, 6, 7]}
    check(tmp_path, learned("SVMClassifier", feeds, (INT64, FLOAT), **given), feeds)
    alone = {**VECTORS, "kernel_type": kernel, "coefficients": [0.5, -1.0, 0.25, 1.0], "rho": [0.3], "n_supports": 4}
    check(tmp_path, learned("SVMRegressor", feeds, **alone), feeds)
    check(tmp_path, learned("SVMRegressor", feeds, one_class=1, **alone), feeds)


def test_probabilities_of_pairs_become_those_of_classes(tmp_path: Path) -> None:
    """Compare with onnxruntime's results: onnx's own evaluator replaces a product of vectors by one element."""
    given = {**VECTORS, "rho": [0.1, -0.2, 0.05], "vectors_per_class": [1, 2, 1], "classlabels_ints": [5, 6, 7]}
    given |= {"prob_a": [-1.0, -0.5, -2.0], "prob_b": [0.1, 0.0, -0.2]}
    feeds = {"x": np.array([[0, 1], [2, -2], [0.5, 1]], np.float32)}
    wanted = [
        [5, 7, 5],
        [[0.408949, 0.311996, 0.279055], [0.262196, 0.293195, 0.444609], [0.415118, 0.317148, 0.267735]],
    ]
    check(tmp_path, learned("SVMClassifier", feeds, (INT64, FLOAT), **given), feeds, wanted)


@pytest.mark.parametrize("changes", [
    {"rho": [0.1]}, {"vectors_per_class": [1, 2, 5]}, {"vectors_per_class": [-1, 4, 1]}, {"coefficients": [1.0]},
    {"support_vectors": [1.0]}, {"kernel_type": "COSINE"}, {"kernel_params": [1.0]}, {"classlabels_ints": [1, 2]},
    {"prob_a": [1.0], "prob_b": [1.0]}, {"vectors_per_class": [2**40, 2, 1]},
])  # fmt: skip
def test_support_vectors_that_contradict_themselves_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    feeds = {"x": np.zeros((2, 2), np.float32)}
    given = {**VECTORS, "rho": [0.1, -0.2, 0.05], "vectors_per_class": [1, 2, 1], "classlabels_ints": [5, 6, 7]}
    with pytest.raises(EngineError):
        ran(tmp_path, learned("SVMClassifier", feeds, (INT64, FLOAT), **{**given, **changes}), feeds)


def test_linear_models_are_ordinary_layers(tmp_path: Path) -> None:
    feeds = {"x": np.random.default_rng(1).normal(size=(9, 2)).astype(np.float32)}
    lines = {"coefficients": [0.5, -1.0, 0.25, 1.0, -0.5, -0.75], "intercepts": [0.1, 0.2, 0.3]}
    labels = {"classlabels_strings": ["a", "b", "c"]}
    for transform in ("NONE", "SOFTMAX", "LOGISTIC"):
        proto = learned("LinearClassifier", feeds, (STRING, FLOAT), post_transform=transform, **lines, **labels)
        check(tmp_path, proto, feeds)
    check(tmp_path, learned("LinearRegressor", feeds, targets=3, **lines), feeds)
    graph = engine.load(save(tmp_path, learned("LinearRegressor", feeds, targets=3, **lines)))
    assert [op.type for op in graph.operators].count("nn.Linear") == 1
    with pytest.raises(EngineError, match="coefficients do not fit"):
        ran(tmp_path, learned("LinearRegressor", feeds, targets=4, **lines), feeds)


def test_features_are_prepared_as_the_reference_does(tmp_path: Path) -> None:
    x = np.array([[1, -5, 2], [0, 0, 0], [3, np.nan, 4]], np.float32)
    feeds, whole = {"x": x}, {"x": x[:2]}
    check(tmp_path, learned("Scaler", feeds, offset=[1.0, 2.0, 3.0], scale=[0.5]), feeds)
    for norm in ("L1", "L2"):
        check(tmp_path, learned("Normalizer", whole, norm=norm), whole)
    imputed = {"imputed_value_floats": [7.0, 8.0, 9.0], "replaced_value_float": float("nan")}
    check(tmp_path, learned("Imputer", feeds, **imputed), feeds)
    check(tmp_path, learned("Imputer", feeds, imputed_value_floats=[7.0], replaced_value_float=0.0), feeds)
    texts = {"x": np.array([["a", "ÿ"], ["?", "a"]], object)}
    check(tmp_path, learned("OneHotEncoder", texts, cats_strings=["a", "ÿ"], zeros=1), texts)
    with pytest.raises(EngineError, match="of no category"):
        ran(tmp_path, learned("OneHotEncoder", texts, cats_strings=["a", "ÿ"], zeros=0), texts)
    tables = {"x": x, "z": x[:, :1]}
    check(tmp_path, learned("FeatureVectorizer", tables, inputdimensions=[2, 1]), tables)
    table = {"cats_strings": ["a", "ÿ"], "cats_int64s": [5, 6], "default_int64": -7}
    check(tmp_path, learned("CategoryMapper", texts, (INT64,), **table), texts, [[[5, 6], [-7, 5]]])


def test_scores_with_labels_are_scores_and_the_labels_those_of_the_model(tmp_path: Path) -> None:
    """As V2 and JSON say them; the output has the name that the file gives it."""
    onnx = pytest.importorskip("onnx")
    x = np.array([[0.25, 0.75]], np.float32)
    zipped = node("ZipMap", ["s"], ["chances"], domain=ML, classlabels_strings=["no", "yes"])
    proto = model([node("Identity", ["x"], ["s"]), zipped], [value("x", [None, 2])], [value("s", None)], domains=[ML])
    kind = onnx.helper.make_map_type_proto(STRING, onnx.helper.make_tensor_type_proto(FLOAT, None))
    chances = onnx.helper.make_sequence_type_proto(kind)
    proto.graph.output.append(onnx.helper.make_value_info("chances", chances))
    graph = engine.load(save(tmp_path, proto))
    assert graph.labels == ("no", "yes")
    assert [port.operand for port in graph.outputs] == ["s", "chances"]
    for found in engine.Session(graph, backend="reference").run([x]):
        np.testing.assert_array_equal(found, x)


def test_models_of_scikit_learn_predict_what_it_predicts(tmp_path: Path) -> None:
    skl2onnx = pytest.importorskip("skl2onnx", reason="the exporter of scikit-learn is not installed")
    from sklearn.datasets import load_iris
    from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, kinds = load_iris(return_X_y=True)
    x, kinds = x.astype(np.float32), np.array(["setosa", "versicolor", "virginica"])[kinds]
    line = make_pipeline(StandardScaler(), LogisticRegression())
    for each in (RandomForestClassifier(5), GradientBoostingClassifier(n_estimators=3), line):
        trained = each.fit(x, kinds)
        proto = skl2onnx.to_onnx(trained, x[:1])
        check(tmp_path, proto, {"X": x}, [trained.predict(x), trained.predict_proba(x)])


def chain(categories: Sequence[int], *, ends: str) -> dict[str, Any]:
    """A set of categories as LightGBM's converter writes it: comparisons one after the other that share a true child.

    Args:
        ends: what that child is, a leaf or a node of another comparison.
    """
    count = len(categories)
    extra = [] if ends == "leaf" else ["BRANCH_LEQ"]
    modes = ["BRANCH_EQ"] * count + extra + ["LEAF"] * (2 + len(extra))
    shared = count  # a leaf of 10, or a node with leaves of 10 and 30
    other = len(modes) - 1
    true = [shared] * count + ([shared + 1] if extra else []) + [0] * (2 + len(extra))
    false = [*range(1, count), other] + ([shared + 2] if extra else []) + [0] * (2 + len(extra))
    leaves = [k for k, mode in enumerate(modes) if mode == "LEAF"]
    return {
        "nodes_treeids": [0] * len(modes), "nodes_nodeids": [*range(len(modes))], "nodes_modes": modes,
        "nodes_featureids": [0] * count + [1] * len(extra) + [0] * (2 + len(extra)),
        "nodes_values": [*map(float, categories)] + [0.5] * len(extra) + [0.0] * (2 + len(extra)),
        "nodes_truenodeids": true, "nodes_falsenodeids": false, "n_targets": 1,
        "target_treeids": [0] * len(leaves), "target_nodeids": leaves, "target_ids": [0] * len(leaves),
        "target_weights": [10.0, 20.0] if ends == "leaf" else [10.0, 30.0, 20.0],
    }  # fmt: skip


@pytest.mark.parametrize("ends", ["leaf", "node"])
@pytest.mark.parametrize("categories", [[3], [3, 7, 11], [*range(0, 600, 2)]], ids=len)
def test_a_node_of_a_tree_may_have_several_parents(categories: list[int], ends: str, tmp_path: Path) -> None:
    x = np.array([(k, side) for k in (0, 3, 7, 11, 598, 599, -1) for side in (0, 1)], np.float32)
    proto = learned("TreeEnsembleRegressor", {"x": x}, **chain(categories, ends=ends))
    wanted = [10 + (20 if ends == "node" and side else 0) if k in categories else 20 for k, side in x.tolist()]
    assert ran(tmp_path, proto, {"x": x})[0].reshape(-1).tolist() == wanted


def test_categories_of_lightgbm_are_split_as_it_splits_them(tmp_path: Path) -> None:
    lightgbm, onnxmltools = pytest.importorskip("lightgbm"), pytest.importorskip("onnxmltools")
    from onnxmltools.convert.common.data_types import FloatTensorType

    random = np.random.default_rng(0)
    x = random.normal(size=(300, 2)).astype(np.float32)
    x[:, 1] = random.integers(0, 30, 300)
    learner = lightgbm.LGBMRegressor(n_estimators=5, num_leaves=6, verbose=-1, n_jobs=1)
    learner.fit(x, x[:, 1] % 3 + 0.1 * x[:, 0], categorical_feature=[1])
    proto = onnxmltools.convert_lightgbm(learner, initial_types=[("x", FloatTensorType([None, 2]))], target_opset=15)
    np.testing.assert_allclose(ran(tmp_path, proto, {"x": x})[0][:, 0], learner.predict(x), rtol=1e-5, atol=1e-5)
