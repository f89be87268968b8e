"""Fallbacks after a kernel fails to compile: the next candidate, and the reference only where none is left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, Session
from engine.compiler.codegen.ir import Module, TooLargeError
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.kernel import Kernel
from engine.compiler.kernels.winograd.winograd import Winograd
from engine.compiler.lowering.selection import ExcludingSelector, select_first
from engine.compiler.lowering.steps import NotLoweredError
from tests.engine.graph.build import F32, INPUT, built, conv, op

SHAPE = (1, 64, 28, 28)


@pytest.fixture(scope="module")
def net() -> RuntimeGraph:
    """Return a convolution for which Winograd's algorithm is fastest on any machine, and its fused operators."""
    convolution = conv("conv", "0", "1", (64, 64), padding=(1, 1))
    return built(INPUT, convolution, op("F.relu", "relu", "1", "2"), op("pnnx.Output", "output", "2"), _0=SHAPE)


def kinds(net: RuntimeGraph) -> dict[str, Any]:
    """Return the kernel kind of each operator; the answer is the reference's."""
    x = np.random.default_rng(7).standard_normal(SHAPE).astype(F32)
    session = Session(net, backend="compiled", cache=None, threads=1)
    (found,), (wanted,) = session.run([x]), Session(net, backend="reference").run([x])
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
    return {row["name"]: row.get("kernel") for row in session.describe()["operators"]}


def refusing(monkeypatch: pytest.MonkeyPatch, *refused: type[Kernel]) -> None:
    def emit(self: Kernel, module: Module) -> None:
        raise TooLargeError("the code of its kernel would be too large")

    for each in refused:
        monkeypatch.setattr(each, "emit", emit)


def test_the_best_kernel_is_taken(net: RuntimeGraph) -> None:
    assert kinds(net)["conv"] == "winograd"


def test_the_next_best_is_taken(net: RuntimeGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, Winograd)
    assert kinds(net)["conv"] == "conv"


def test_what_was_fused_stays_so_where_another_kernel_of_the_same_result_can_be_made(
    net: RuntimeGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit, refused = Winograd.emit, set[str]()

    def emit_all_but_the_first(self: Winograd, module: Module) -> None:
        refused.add((refused or {self.name}).pop())
        if self.name in refused:
            raise TooLargeError("the code of its kernel would be too large")
        emit(self, module)

    monkeypatch.setattr(Winograd, "emit", emit_all_but_the_first)
    found = kinds(net)
    assert (found["conv"], found["relu"]) == ("winograd", "fused")
    assert refused


def test_the_reference_is_what_is_left(net: RuntimeGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, Winograd, Conv)
    found = kinds(net)
    assert found["conv"] == "reference"
    assert found["relu"] != "reference"


def test_why_the_best_was_not_taken_is_told() -> None:
    select = ExcludingSelector(select_first)

    def taken() -> Any:
        return select("conv", iter(kernels), lambda kernel: kernel)

    kernels: list[Any] = ["first", "second"]
    assert not select.exclude("conv", "it has not been requested yet")
    assert taken() == "first"
    assert select.exclude("conv", "the code of its kernel would be too large")
    assert taken() == "second"
    assert select.exclude("conv", "its kernel is not valid code")
    with pytest.raises(NotLoweredError, match="its kernel would be too large"):
        taken()
