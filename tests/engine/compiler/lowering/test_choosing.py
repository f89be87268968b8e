"""Where a kernel cannot be made the next best computes the result, and the reference only where none can."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, Session
from engine.compiler.blueprint import NotYetMadeError
from engine.compiler.codegen.host import describe
from engine.compiler.codegen.ir import Module, TooLargeError
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.tiles import ConvTile
from engine.compiler.kernels.kernel import Kernel, Strides
from engine.compiler.kernels.winograd.winograd import Winograd
from engine.compiler.lowering.choosing import Avoiding, TakingMade, take_first
from engine.compiler.lowering.declining import NotLoweredError
from tests.engine.graph.build import F32, INPUT, built, conv, op

SHAPE = (1, 64, 28, 28)


@pytest.fixture(scope="module")
def net() -> RuntimeGraph:
    """A convolution that Winograd's algorithm is fastest for on any machine, and what is fused with it."""
    convolution = conv("conv", "0", "1", (64, 64), padding=(1, 1))
    return built(INPUT, convolution, op("F.relu", "relu", "1", "2"), op("pnnx.Output", "output", "2"), _0=SHAPE)


def kinds(net: RuntimeGraph) -> dict[str, Any]:
    """What computes each operator; the answer is the reference's."""
    x = np.random.default_rng(7).standard_normal(SHAPE).astype(F32)
    session = Session(net, backend="compiled", cache=None, threads=1)
    (found,), (wanted,) = session.run([x]), Session(net, backend="reference").run([x])
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
    return {row["name"]: row.get("kernel") for row in session.describe()["operators"]}


def refusing(monkeypatch: pytest.MonkeyPatch, *refused: type[Kernel]) -> None:
    def emit(self: Kernel, module: Module) -> None:
        raise TooLargeError("its kernel would be too much code")

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
            raise TooLargeError("its kernel would be too much code")
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
    choose = Avoiding(take_first)

    def taken() -> Any:
        return choose("conv", iter(kernels), lambda kernel: kernel)

    kernels: list[Any] = ["first", "second"]
    assert not choose.avoid("conv", "nobody has asked for it yet")
    assert taken() == "first"
    assert choose.avoid("conv", "its kernel would be too much code")
    assert taken() == "second"
    assert choose.avoid("conv", "its kernel is not valid code")
    with pytest.raises(NotLoweredError, match="too much code"):
        taken()


def direct(columns: int, in_channels: int = 16) -> Conv:
    strides = Strides(0, 320, 16)
    return Conv(
        batch=1, rows=20, columns=20, in_channels=in_channels, out_channels=16, groups=1,
        kernel=(1, 1), stride=(1, 1), dilation=(1, 1), source=strides, target=strides,
        tile=ConvTile(1, columns, 1), host=describe("avx2"),
    )  # fmt: skip


def step_of(kernel: Conv) -> Any:
    return SimpleNamespace(kernel=kernel)


def test_of_kernels_that_read_the_same_weights_the_best_is_taken_of_which_there_is_code() -> None:
    best, other, worst, alien = direct(8), direct(6), direct(4), direct(8, 32)
    made: list[Conv] = [worst, other]
    there_is: Any = SimpleNamespace(is_made=lambda step: step.kernel in made, wanted=lambda step: step.kernel)
    choose = TakingMade(there_is)
    assert choose("conv", iter([best, other, worst]), step_of).kernel is other
    assert choose.others == {"conv": best}
    with pytest.raises(NotYetMadeError):
        TakingMade(there_is, is_best=True)("conv", iter([best, other, worst]), step_of)
    made.append(best)
    assert TakingMade(there_is, is_best=True)("conv", iter([best, other, worst]), step_of).kernel is best
    assert choose("conv", iter([best, other, worst]), step_of).kernel is best
    made[:] = [alien]
    with pytest.raises(NotYetMadeError):
        choose("conv", iter([best, alien]), step_of)
