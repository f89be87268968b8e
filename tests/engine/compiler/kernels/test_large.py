"""No kernel takes stack, code or compile time in proportion to a tensor or a parameter."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from engine import CompileError, RuntimeGraph, Session
from engine.compiler.assembly import generation, objects
from engine.compiler.codegen.ir import Module, TooLargeError, function
from engine.compiler.kernels.kernel import Epilogue
from engine.compiler.kernels.pooling import pool
from engine.compiler.storage import row_major
from tests.engine.graph.build import F32, INPUT, built, conv, op

ROOT = Path(__file__).parents[4]
COMPILER = ROOT / "engine" / "compiler"


def test_memory_on_the_stack_is_bounded_where_it_is_reserved() -> None:
    f = Module().function("f", [])
    f.reserve(function.STACK_BYTES // 8)
    with pytest.raises(TooLargeError, match="stack"):
        f.reserve(function.STACK_BYTES // 8 + 1)


def test_no_other_kernel_reserves_any() -> None:
    asking = [path.name for path in COMPILER.rglob("*.py") if "alloca " in path.read_text()]
    assert sorted(asking) == ["chunks.py", "function.py"]  # of the team's two words the number is fixed


def test_code_is_bounded_where_it_is_written() -> None:
    module = Module()
    with pytest.raises(TooLargeError, match="its kernel would be too large"):
        for _ in range(function.BLOCK_OPERATIONS + 1):
            f = module.functions.get("f") or module.function("f", [("i64", "n")])
            f.add(f.parameters[0], 1)


def two_pools() -> RuntimeGraph:
    plain = {"stride": (2,), "padding": (0,), "ceil_mode": False, "count_include_pad": True}
    return built(
        INPUT,
        op("nn.AvgPool1d", "short", "0", "1", kernel_size=(2,), **plain),
        op("nn.ReLU", "relu", "1", "2"),
        op("nn.AvgPool1d", "long", "2", "3", kernel_size=(3,), **plain),
        op("pnnx.Output", "out", "3"),
        _0=(1, 4, 64),
    )


def kernels(graph: RuntimeGraph) -> dict[str, Any]:
    session = Session(graph, backend="auto", cache=None)
    session.prepare()
    rows = {row["name"]: row for row in session.describe()["operators"]}
    x = np.random.default_rng(0).standard_normal((1, 4, 64)).astype(F32)
    (wanted,) = Session(graph, backend="reference").run([x])
    np.testing.assert_allclose(session.run([x])[0], wanted, rtol=1e-5, atol=1e-6)
    assert session.compile_failure is None
    return rows


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (TooLargeError("the code of its kernel would be too large"), "the code of its kernel would be too large"),
        (ZeroDivisionError(), "its kernel failed with ZeroDivisionError"),
    ],
)
def test_an_operator_whose_kernel_cannot_be_written_alone_is_left_to_its_layer(
    monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    emit = pool.Pool.emit

    def refuse(kernel: pool.Pool, *given: Any) -> None:
        if kernel.across.kernel == 3:
            raise error
        emit(kernel, *given)

    monkeypatch.setattr(pool.Pool, "emit", refuse)
    rows = kernels(two_pools())
    assert rows["long"]["why"] == why
    assert [rows[name]["kernel"] for name in ("short", "relu", "long")] == ["pool", "fused", "reference"]


def test_a_kernel_that_is_too_large_with_what_follows_is_made_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    emit = pool.Pool.emit

    def refuse(kernel: pool.Pool, *given: Any) -> None:
        if kernel.epilogue != Epilogue():
            raise TooLargeError("the code of its kernel would be too large")
        emit(kernel, *given)

    monkeypatch.setattr(pool.Pool, "emit", refuse)
    rows = kernels(two_pools())
    assert [rows[name]["kernel"] for name in ("short", "relu", "long")] == ["pool", "map", "pool"]


@pytest.mark.parametrize(
    ("module", "limit", "why"),
    [(objects, "PROGRAM_OPERATIONS", "too large"), (generation, "PROGRAM_STEPS", "too many steps")],
)
def test_a_program_that_outgrows_its_budget_is_not_compiled(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, limit: str, why: str
) -> None:
    monkeypatch.setattr(module, limit, 1)
    with pytest.raises(CompileError, match=why):
        Session(two_pools(), backend="compiled", cache=None).prepare()
    session = Session(two_pools(), backend="auto", cache=None)
    session.prepare()
    assert why in str(session.compile_failure)


def test_a_view_lies_within_its_storage_with_both_ends() -> None:
    view = row_major((4, 6), F32)
    reaching = view.meta.as_strided
    assert view.derive(reaching((4, 6), (24, 4))) is not None
    assert view.derive(reaching((4, 7), (24, 4))) is None
    assert view.derive(reaching((2,), (-4,))) is None
    assert view.derive(view.meta[::-1, ::-1]) is not None
    assert view.derive(row_major((4, 6), F32).meta) is None


def test_a_tensor_beyond_the_address_space_is_not_compiled() -> None:
    with pytest.raises(CompileError, match=r"a tensor is too large: found 1,125,899,906,842,624 bytes"):
        row_major((2**24, 2**24), F32)


def test_padding_far_larger_than_an_image_is_left_to_the_reference() -> None:
    given = {"padding": (1, 40_000), "stride": (1, 40_000)}
    graph = built(INPUT, conv("it", "0", "1", (1, 2), **given), op("pnnx.Output", "out", "1"), _0=(1, 1, 4, 3))
    session = Session(graph, cache=None)
    session.prepare()
    (row,) = [row for row in session.describe()["operators"] if row["name"] == "it"]
    assert row["why"] == "there is no kernel for this padding"
