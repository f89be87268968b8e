"""Tests that compiler defects are logged with their operator, counted and listed, not hidden by the reference."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.compiler.kernels.kernel import Kernel
from engine.compiler.lowering.rules.registry import KERNEL_RULES
from engine.layers.normalisation.softmax import Softmax
from tests.app.client import Client, serving
from tests.app.sample_models import F32, write_model

X = np.array([[1.0, 2.0, 4.0]], F32)
SOFTMAX = [
    "pnnx.Input in 0 1 0 #0=(1,3)f32",
    "F.softmax soft 1 1 0 1 dim=1 #1=(1,3)f32",
    "pnnx.Output out 1 0 1 #1=(1,3)f32",
]
EXPECTED = np.exp(X - 4) / np.exp(X - 4).sum()


def faulty_rule(*_: object) -> None:
    raise ZeroDivisionError("a fault of the rule")


@pytest.fixture(params=["rule", "kernel", "plan"])
def defect(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, str]:
    """Inject a defect into the compiler, and return its row: operator, type and error."""
    operator = ("soft", "F.softmax")
    if request.param == "rule":
        monkeypatch.setitem(KERNEL_RULES, Softmax, faulty_rule)
    elif request.param == "kernel":
        monkeypatch.setattr(Kernel, "write", faulty_rule)
    else:
        monkeypatch.setattr("engine.compiler.builder.check_plan", faulty_rule)
        operator = ("", "")
    return (*operator, "ZeroDivisionError: a fault of the rule")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_model(tmp_path, "one", SOFTMAX)
    return tmp_path


def row(client: Client) -> dict[str, object]:
    (version,) = client.get("/models/one").json()["versions"]
    return dict(version)


def test_the_reference_answers_and_the_defect_is_logged_counted_and_listed(
    store: Path, defect: tuple[str, str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with serving(store, cache=False) as client:
        answer = client.infer("one", X.tolist()).json()
        listed, metrics = row(client)["compiler_defects"], client.get("/metrics").text
    np.testing.assert_allclose(np.reshape(answer["outputs"]["out0"]["data"], (1, 3)), EXPECTED, rtol=1e-6)
    assert listed == [dict(zip(("operator", "type", "error"), defect, strict=True))]
    (count,) = [line for line in metrics.splitlines() if line.startswith("pnnx_serve_compiler_defects_total{")]
    assert (
        count.startswith('pnnx_serve_compiler_defects_total{model="one",version="1"}') and float(count.split()[-1]) >= 1
    )
    # Sessions of other tests may compile in the background meanwhile, and log the same fault of other operators.
    messages = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert [each for each in messages if "defect" in each and all(word in each for word in defect)]


def test_it_is_an_error_where_only_machine_code_may_answer(store: Path, defect: tuple[str, str, str]) -> None:
    with serving(store, cache=False, backend="compiled") as client:
        answer = client.infer("one", X.tolist())
        reason = client.get("/models/one").json()["versions"][0]["reason"]
    assert answer.status_code >= 500
    assert "the compiler failed" in str(reason) and "ZeroDivisionError" in str(reason)


def test_a_defect_of_a_decomposition_leaves_its_operator_to_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path, "one", [SOFTMAX[0], "torch.logit it 1 1 0 1 #1=(1,3)f32", SOFTMAX[-1]])
    monkeypatch.setattr("engine.passes.decomposition._Writer.write", faulty_rule)
    with serving(tmp_path, cache=False) as client:
        answer = client.infer("one", [[0.5, 0.25, 0.75]]).json()
        listed, metrics = row(client)["compiler_defects"], client.get("/metrics").text
    np.testing.assert_allclose(answer["outputs"]["out0"]["data"], [0, -np.log(3), np.log(3)], rtol=1e-5, atol=1e-7)
    assert {"operator": "it", "type": "torch.logit", "error": "ZeroDivisionError: a fault of the rule"} in listed
    assert "pnnx_serve_compiler_defects_total{" in metrics


def test_a_model_without_defects_says_so(store: Path) -> None:
    with serving(store, cache=False) as client:
        assert row(client)["compiler_defects"] == []
        assert "pnnx_serve_compiler_defects_total{" not in client.get("/metrics").text


def test_a_refusal_that_a_rule_declares_is_no_defect(store: Path) -> None:
    session = engine.Session(engine.load(store / "one" / "1" / "model.pnnx.param"), winograd="off", cache=None)
    session.run([X.astype(F32)])
    assert session.compiler_defects == 0 and session.describe_defects() == []
