"""An infinity or NaN stays where PyTorch has it, whatever algorithm a convolution runs by."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Session
from engine.compiler.codegen import object_code
from engine.compiler.runtime.instance import Instance, NotFiniteError
from engine.errors import CompileError
from engine.graph import RuntimeGraph
from tests.engine.graph.build import F32, INPUT, built, conv, op

RANDOM = np.random.default_rng(5)


@pytest.fixture(scope="module")
def network() -> RuntimeGraph:
    layer = conv("conv", "0", "1", (24, 24), padding=(1, 1))
    return built(INPUT, layer, op("nn.ReLU", "relu", "1", "2"), op("pnnx.Output", "out", "2"), _0=(1, 24, 20, 20))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_window(network: RuntimeGraph, number: float) -> None:
    x = RANDOM.standard_normal((1, 24, 20, 20)).astype(F32)
    x[0, 3, 9, 14] = number
    compiled, reference = Session(network, backend="compiled", cache=None), Session(network, backend="reference")
    compiled.prepare()
    assert {row["kernel"] for row in compiled.describe()["operators"] if row["name"] == "conv"} == {"winograd"}
    (found,), (wanted,) = compiled.run([x]), reference.run([x])
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert 0 < np.count_nonzero(~np.isfinite(wanted)) <= 9 * 24


def test_the_next_run_is_not_concerned(network: RuntimeGraph) -> None:
    x = RANDOM.standard_normal((1, 24, 20, 20)).astype(F32)
    session = Session(network, backend="compiled", cache=None)
    before = session.run([x])[0]
    session.run([np.full_like(x, np.nan)])
    np.testing.assert_array_equal(session.run([x])[0], before)


def test_numbers_that_come_once_compile_nothing(network: RuntimeGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    session, x = Session(network, cache=None), np.full((1, 24, 20, 20), np.inf, F32)
    session.prepare()
    monkeypatch.setattr(object_code, "assemble", None)
    (found,), (wanted,) = session.run([x]), Session(network, backend="reference").run([x])
    np.testing.assert_array_equal(found, wanted)


def test_code_that_always_reports_void_results_ends_in_an_error(
    network: RuntimeGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def declare_void(*_: object, **__: object) -> None:
        raise NotFiniteError

    session = Session(network, backend="compiled", cache=None)
    session.prepare()
    monkeypatch.setattr(Instance, "run", declare_void)
    with pytest.raises(CompileError, match="reports void results"):
        session.run([np.zeros((1, 24, 20, 20), F32)])
