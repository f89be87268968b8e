"""Measure pipelines of scikit-learn, LightGBM and XGBoost beside onnxruntime on the same ONNX file.

    python -m benchmarks.classical_models [--models logistic forest ...] [--seconds 0.5] [--save NAME]

Both engines run in this process on one thread and take turns. Answers are compared with onnxruntime's before anything
is timed. Needs scikit-learn, skl2onnx, lightgbm, xgboost, onnxmltools and onnxruntime.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

import engine
from app.measuring.contest import Contest, load
from benchmarks.machine import describe
from benchmarks.raw import Result
from benchmarks.record import OURS
from benchmarks.report import table

ROWS: Final = (1, 64)
FEATURES: Final = 20
_WAIT_S: Final = 120.0


def models() -> Mapping[str, Callable[[], Any]]:
    """Return makers of unfitted models by name."""
    from sklearn import (
        cluster,
        decomposition,
        ensemble,
        impute,
        linear_model,
        naive_bayes,
        neighbors,
        neural_network,
        pipeline,
        preprocessing,
        svm,
        tree,
    )
    from sklearn.multiclass import OneVsRestClassifier

    scaled = lambda model: pipeline.make_pipeline(preprocessing.StandardScaler(), model)  # noqa: E731
    return {
        "logistic": lambda: scaled(linear_model.LogisticRegression()),
        "linear_svc": svm.LinearSVC,
        "polynomial_ridge": lambda: pipeline.make_pipeline(preprocessing.PolynomialFeatures(2), linear_model.Ridge()),
        "imputed": lambda: pipeline.make_pipeline(
            impute.SimpleImputer(), preprocessing.Normalizer(), linear_model.LogisticRegression()
        ),
        "svc": lambda: scaled(svm.SVC(probability=True)),
        "svc_one_vs_rest": lambda: OneVsRestClassifier(svm.SVC(probability=True)),
        "svr": lambda: scaled(svm.SVR()),
        "tree": tree.DecisionTreeClassifier,
        "forest": lambda: ensemble.RandomForestClassifier(100, max_depth=8),
        "forest_regression": lambda: ensemble.RandomForestRegressor(100),
        "extra_trees": lambda: ensemble.ExtraTreesClassifier(50),
        "gradient_boosting": ensemble.GradientBoostingClassifier,
        "ada_boost": lambda: ensemble.AdaBoostClassifier(n_estimators=30),
        "isolation_forest": ensemble.IsolationForest,
        "neighbours": neighbors.KNeighborsClassifier,
        "neighbours_regression": neighbors.KNeighborsRegressor,
        "naive_bayes": naive_bayes.GaussianNB,
        "mlp": lambda: scaled(neural_network.MLPClassifier((64, 32), max_iter=50)),
        "clusters": lambda: pipeline.make_pipeline(decomposition.PCA(8), cluster.KMeans(5)),
        "lightgbm": lambda: __import__("lightgbm").LGBMClassifier(n_estimators=50, verbose=-1),
        "lightgbm_regression": lambda: __import__("lightgbm").LGBMRegressor(verbose=-1),
        "xgboost": lambda: __import__("xgboost").XGBClassifier(n_estimators=50),
        "xgboost_regression": lambda: __import__("xgboost").XGBRegressor(),
    }


def convert(name: str, model: Any, path: Path) -> None:
    """Write a fitted model as an ONNX file of dynamic batch size."""
    if name.startswith(("lightgbm", "xgboost")):
        from onnxmltools import convert_lightgbm, convert_xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType

        types = [("X", FloatTensorType([None, FEATURES]))]
        if name.startswith("xgboost"):
            proto = convert_xgboost(model, initial_types=types)
        else:
            proto = convert_lightgbm(model, initial_types=types, zipmap=False)
    else:
        from skl2onnx import convert_sklearn
        from skl2onnx.common.data_types import FloatTensorType

        types = [("X", FloatTensorType([None, FEATURES]))]
        options = {id(model): {"zipmap": False}} if hasattr(model, "predict_proba") else None
        opset = {"": 17, "ai.onnx.ml": 3}
        proto = convert_sklearn(model, initial_types=types, options=options, target_opset=opset)
    path.write_bytes(proto.SerializeToString())


def fitted(name: str, make: Callable[[], Any]) -> tuple[Any, Any]:
    """Return a model that is fitted to seeded data, and the data as float32."""
    from sklearn.datasets import make_classification, make_regression

    is_regression = "regression" in name or name in ("svr", "polynomial_ridge")
    if is_regression:
        x, y = make_regression(600, FEATURES, random_state=0)
        y = y / 100
    else:
        classes = 2 if name in ("gradient_boosting", "ada_boost", "extra_trees", "isolation_forest") else 3
        x, y = make_classification(600, FEATURES, n_informative=10, n_classes=classes, random_state=0)
    x = x.astype(np.float32)
    if name == "imputed":
        x[::7, 3] = np.nan
    model = make()
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    return model.fit(x, y), x


def measure(name: str, path: Path, x: Any, seconds: float) -> list[dict[str, Any]]:
    """Return the fastest and the median time of both engines for each number of rows.

    Raises:
        RivalError: our answer differs from onnxruntime's.
    """
    rival = load("onnxruntime", path, {"onnx": str(path)}, 1)[1]
    session = engine.Session(engine.load(path), threads=1, cache=None)
    records = []
    for rows in ROWS:
        inputs = [x[:rows]]
        end = time.monotonic() + _WAIT_S
        while session.run(inputs) and not session.is_compiled(inputs) and time.monotonic() < end:
            time.sleep(0.01)
        contest = Contest(inputs, rival(inputs))
        contest.enter(OURS, session.run)
        contest.enter("onnxruntime", rival)
        times = contest.measure(seconds, lambda *_: None)
        records.append(
            {"model": name, "rows": rows, **{each: [found.least_s, found.median_s] for each, found in times.items()}}
        )
    session.close()
    return records


def report(records: list[dict[str, Any]]) -> str:
    """Return the table: microseconds by fastest run, and onnxruntime's time divided by ours."""
    ratios = {
        rows: [each["onnxruntime"][0] / each[OURS][0] for each in records if each["rows"] == rows] for rows in ROWS
    }
    lines = []
    for name in dict.fromkeys(each["model"] for each in records):
        cells = [name]
        for each in (one for one in records if one["model"] == name):
            ours, its = each[OURS][0], each["onnxruntime"][0]
            cells += [f"{ours * 1e6:.0f}", f"{its * 1e6:.0f}", f"{its / ours:.2f}"]
        lines.append(cells)
    means = ["geometric mean", *(cell for rows in ROWS for cell in ("", "", f"{geometric_mean(ratios[rows]):.2f}"))]
    titles = ["model", *(f"{what}, {rows}" for rows in ("1 row", "64 rows") for what in ("ours µs", "ort µs", "ratio"))]
    return table(titles, [*lines, means])


def main() -> int:
    """Fit, convert, measure and print; return 1 if a model fails or an answer is wrong."""
    warnings.filterwarnings("ignore")
    known = models()
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(known), choices=list(known), metavar="MODEL")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each engine and number of rows (0.5)")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    records, failures = [], []
    with TemporaryDirectory(prefix="classical-") as folder:
        for name in options.models:
            path = Path(folder) / f"{name}.onnx"
            try:
                model, x = fitted(name, known[name])
                convert(name, model, path)
                records += measure(name, path, x, options.seconds)
            except Exception as error:  # of whichever library
                failures.append(f"- {name}: {type(error).__name__}: {str(error)[:200]}")
            print(f"{name}: measured", file=sys.stderr, flush=True)
    body = report(records) + ("\n\nNot timed:\n\n" + "\n".join(failures) if failures else "")
    how = f"one thread, {options.seconds:g} s for each engine and number of rows"
    result = Result(kind="classical", machine=describe([OURS, "onnxruntime"]), how=how, body=body, records=records)
    result.publish(options.save)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
