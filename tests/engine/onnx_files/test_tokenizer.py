"""Tokenizer of onnxruntime's domain, which skl2onnx writes for texts, against onnxruntime and scikit-learn."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.onnx_files.models import model, node, save, value

onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
STRING = 8
TEXTS = np.array([["Hello World 12", "a,b;;c, dé", ""], ["  x", "ÄÖ_ü zz\nq", "nothing-here"]], object)


def tokenizer(folder: Path, **attributes: Any) -> Path:
    """Write a file with one Tokenizer."""
    given = {"mark": 0, "mincharnum": 1, "pad_value": "#", **attributes}
    made = node("Tokenizer", ["x"], ["y"], domain="com.microsoft", **given)
    proto = model([made], [value("x", None, STRING)], [value("y", None, STRING)])
    version = proto.opset_import.add()
    version.domain, version.version = "com.microsoft", 1
    return save(folder, proto)


def run(path: Path, texts: np.ndarray) -> Any:
    (found,) = engine.Session(engine.load(path), backend="reference").run({"x": texts})
    return found


@pytest.mark.parametrize("mark", [0, 1])
@pytest.mark.parametrize(
    "attributes",
    [
        {"tokenexp": "[a-zA-Z0-9_]+"},
        {"tokenexp": "[a-zA-Z0-9_]+", "mincharnum": 2},
        {"tokenexp": "."},
        {"tokenexp": r"\w\w+"},
        {"tokenexp": r"\b\w+\b"},
        {"tokenexp": "[^ ]+"},
        {"tokenexp": "q"},
        {"separators": [" "]},
        {"separators": [" ", ","], "mincharnum": 2},
        {"separators": [r"\s+", ";"]},
        {"separators": [",", ",;"]},
        {"separators": [""]},
    ],
    ids=str,
)
def test_tokens_are_those_of_onnxruntime(tmp_path: Path, attributes: dict[str, Any], mark: int) -> None:
    path = tokenizer(tmp_path, mark=mark, **attributes)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for texts in (TEXTS, TEXTS[0], TEXTS[:, 2:], np.array([[""]], object)):
        (expected,) = session.run(None, {"x": texts})
        np.testing.assert_array_equal(run(path, texts), expected)


@pytest.mark.parametrize("pattern", ["(a+)+b", "a*", "a|b", r"(a)\1", "a+b+", r"[a-z]+\b", "[z-a]+", "[[:alpha:]]+"])
def test_a_pattern_that_could_take_long_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(engine.EngineError, match="a pattern that is not supported"):
        engine.load(tokenizer(tmp_path, tokenexp=pattern))


@pytest.mark.parametrize("attributes", [{}, {"tokenexp": "a", "separators": [" "]}])
def test_tokens_or_separators_must_be_given(tmp_path: Path, attributes: dict[str, Any]) -> None:
    with pytest.raises(engine.EngineError, match="both or none of tokenexp and separators"):
        engine.load(tokenizer(tmp_path, **attributes))


@pytest.mark.parametrize("pattern", [r"\b\w\w+\b", r"aaaaaaaa[a-z]+", "[^b]+"])
def test_a_long_text_takes_time_in_proportion_to_its_length(tmp_path: Path, pattern: str) -> None:
    path = tokenizer(tmp_path, tokenexp=pattern)
    begin = time.process_time()
    for text in ("a" * 2_000_000, "a1 " * 600_000, "a" * 2_000_000 + "é"):
        run(path, np.array([text], object))
    assert time.process_time() - begin < 20


@pytest.mark.filterwarnings("ignore")
def test_a_pipeline_of_scikit_learn_takes_texts(tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx", reason="needs skl2onnx, of the bench extra")
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline, make_union

    texts = ["Where is my parcel?", "I love this lamp!", "the lamp is broken", "great lamp, thanks 12"] * 3
    features = make_union(TfidfVectorizer(ngram_range=(1, 2)), CountVectorizer(analyzer="char"))
    pipeline = make_pipeline(features, LogisticRegression()).fit(texts, ["ship", "praise", "fault", "praise"] * 3)
    types = [("text", StringTensorType([None, 1]))]
    proto = convert_sklearn(pipeline, initial_types=types, options={"zipmap": False}, target_opset=17)
    asked = ["My LAMP is broken", "Where is it", ""]
    labels, scores = engine.Session(engine.load(save(tmp_path, proto))).run({"text": np.array([asked], object).T})
    assert labels.tolist() == pipeline.predict(asked).tolist()
    np.testing.assert_allclose(scores, pipeline.predict_proba(asked), atol=1e-6)
