"""Graphs whose inputs come in many shapes: code and weights are made once, for all of them."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.compiler import CompiledGraph
from engine.compiler.assembly import objects
from engine.compiler.assembly.dynamic_kernels import DynamicKernel, DynamicKernelCache
from engine.options import Options
from engine.tensor import Array, TensorSpec
from tests.engine.graph.build import INPUT, built, conv, op

F32 = np.dtype(np.float32)
ATTENTION = ("query", "key", "value", "attn_mask")
POOL: dict[str, Any] = {"kernel_size": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)}


def reader() -> engine.RuntimeGraph:
    """Return a model that reads lines of text: convolutions, a pool, a recurrent layer, a softmax."""
    random = np.random.default_rng(3)

    def some(*shape: int) -> Array:
        return random.standard_normal(shape).astype(np.float32) / np.float32(4)

    ends = ("l0", "l0_reverse")
    weights = {f"weight_ih_{end}": some(64, 24) for end in ends} | {f"weight_hh_{end}": some(64, 16) for end in ends}
    weights |= {f"bias_{part}_{end}": some(64) for part in ("ih", "hh") for end in ends}
    return built(
        INPUT,
        conv("first", "0", "1", (3, 16), padding=(1, 1)),
        op("nn.ReLU", "relu", "1", "2"),
        op("nn.MaxPool2d", "pool", "2", "3", **POOL),
        conv("second", "3", "4", (16, 32), padding=(1, 1)),
        conv("third", "4", "5", (32, 24), (4, 1)),
        op("torch.squeeze", "flat", "5", "6", dim=2),
        op("Tensor.permute", "turned", "6", "7", dims=(0, 2, 1)),
        op(
            "nn.LSTM", "lstm", "7", "8", input_size=24, hidden_size=16, num_layers=1, bidirectional=True, bias=True,
            batch_first=True, proj_size=0, **weights,
        ),
        op("F.log_softmax", "probable", "8", "9", dim=-1),
        op("pnnx.Output", "out", "9"),
        _0=(1, 3, 8, None),
    )  # fmt: skip


def image(width: int) -> Array:
    return np.random.default_rng(width).standard_normal((1, 3, 8, width), np.float32)


def specs(width: int) -> list[TensorSpec]:
    return [TensorSpec((1, 3, 8, width), F32)]


@pytest.fixture
def dynamic_kernels(monkeypatch: pytest.MonkeyPatch) -> DynamicKernelCache:
    """Code that no other test has made."""
    own = DynamicKernelCache()
    monkeypatch.setattr(objects, "DYNAMIC_KERNELS", own)
    return own


def test_any_shape_gives_what_the_reference_gives() -> None:
    graph = reader()
    reference = engine.Session(graph, backend="reference")
    session = engine.Session(graph, backend="compiled", cache=None, threads=2)
    for width in (8, 9, 40, 33, 2, 150, 64, 8):
        found, expected = session.run([image(width)])[0], reference.run([image(width)])[0]
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


def test_signals_of_any_length_give_what_the_reference_gives() -> None:
    graph = built(
        INPUT,
        conv("first", "0", "1", (32, 48), (5,), padding=(2,)),
        conv("second", "1", "2", (48, 40), (3,), padding=(4,), dilation=(4,)),
        op("pnnx.Output", "out", "2"),
        _0=(2, 32, None),
    )
    reference = engine.Session(graph, backend="reference")
    session = engine.Session(graph, backend="compiled", cache=None, threads=2)
    for length in (200, 203, 9, 77, 207):
        x = np.random.default_rng(length).standard_normal((2, 32, length), np.float32)
        expected = reference.run([x])[0]
        np.testing.assert_allclose(session.run([x])[0], expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def text_model() -> engine.RuntimeGraph:
    """Return a model of text: a table, attention with a mask, a norm."""
    random = np.random.default_rng(5)
    weights = {name: random.standard_normal((32, 32)).astype(np.float32) / 8 for name in "qkv"}
    linears = [op("nn.Linear", f"to_{k}", "2", k, in_features=32, out_features=32, bias=False, weight=w)
               for k, w in weights.items()]  # fmt: skip
    heads = [op("Tensor.reshape", f"split_{k}", k, f"{k}s", shape=(1, -1, 4, 8)) for k in weights]
    turned = [op("torch.transpose", f"turn_{k}", f"{k}s", f"{k}t", dim0=1, dim1=2) for k in weights]
    return built(
        op("pnnx.Input", "ids", "", "0"),
        op("pnnx.Input", "mask", "", "1"),
        op("nn.Embedding", "table", "0", "2", weight=random.standard_normal((50, 32)).astype(np.float32)),
        *linears, *heads, *turned,
        op("F.scaled_dot_product_attention", "attention", "qt kt vt 1", "3", labels=ATTENTION),
        op("torch.mul", "gate", "3 3", "4"),
        op("torch.gt", "where", "3", "5", other=0.0),
        op("pnnx.Output", "out", "4"),
        op("pnnx.Output", "out_1", "5"),
        _0=TensorSpec((1, None), np.dtype(np.int64)), _1=TensorSpec((1, 1, 1, None), np.dtype(np.bool_)),
    )  # fmt: skip


def text(length: int) -> list[Array]:
    random = np.random.default_rng(length)
    return [random.integers(0, 50, (1, length)), np.arange(length).reshape(1, 1, 1, length) < max(1, length * 2 // 3)]


def test_a_new_length_of_a_text_takes_no_compiler(dynamic_kernels: DynamicKernelCache) -> None:
    graph, made = text_model(), []
    compiled = CompiledGraph(graph, Options(threads=1))
    for length in range(100, 160):  # a few tiles are tried, and then all code is there
        if not _is_known(compiled, length):
            compiled.builder.program([TensorSpec(each.shape, each.dtype) for each in text(length)])
            made.append(length)
    assert len(made) <= 6, made
    reference = engine.Session(graph, backend="reference")
    session = engine.Session(graph, backend="compiled", cache=None, threads=1)
    for length in (112, 96, 98, 1, 2, 15, 600):
        for found, expected in zip(session.run(text(length)), reference.run(text(length)), strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def _is_known(compiled: CompiledGraph, length: int) -> bool:
    return compiled.builder.has_template([TensorSpec(each.shape, each.dtype) for each in text(length)])


def picture_model() -> engine.RuntimeGraph:
    """Return a model that sharpens pictures: Winograd convolutions between copies of three channels."""
    return built(
        INPUT,
        conv("first", "0", "1", (3, 32), padding=(1, 1)),
        op("nn.ReLU", "relu", "1", "2"),
        conv("second", "2", "3", (32, 32), padding=(1, 1)),
        conv("last", "3", "4", (32, 12), padding=(1, 1)),
        op("nn.PixelShuffle", "shuffle", "4", "5", upscale_factor=2),
        op("pnnx.Output", "out", "5"),
        _0=(1, 3, None, None),
    )


def test_a_new_size_of_a_picture_takes_next_to_no_compiler(
    dynamic_kernels: DynamicKernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: list[str] = []
    write = DynamicKernel.write
    monkeypatch.setattr(
        DynamicKernel, "write", lambda self: kinds.append(self.call.function.split("_")[0]) or write(self)
    )
    graph = picture_model()
    session = engine.Session(graph, backend="compiled", cache=None, threads=1)
    reference = engine.Session(graph, backend="reference")
    for height, width in ((24, 24), (25, 27), (26, 24), (27, 26), (30, 25), (31, 31)):
        given = [np.random.default_rng(width).standard_normal((1, 3, height, width), np.float32)]
        found, expected = session.run(given)[0], reference.run(given)[0]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert kinds.count("winograd") <= 2 and kinds.count("conv") <= 6 and len(kinds) <= 12, kinds


def known_width(compiled: CompiledGraph) -> int:
    """Return a width that another width's program is valid for, which is compiled first."""
    compiled.builder.program(specs(100))
    assert compiled.builder.has_template(specs(140))
    return 140


def test_a_shape_finds_the_program_of_another_and_shares_its_weights(dynamic_kernels: DynamicKernelCache) -> None:
    compiled = CompiledGraph(reader(), Options(threads=1))
    assert compiled.builder.bound_program(specs(72)) is None
    first = compiled.builder.program(specs(100))
    known = compiled.builder.bound_program(specs(known_width(compiled)))
    assert known is not None and known.executable.weights.ctypes.data == first.executable.weights.ctypes.data
    assert known.executable.constants.size < known.executable.weights.size / 100  # initial states


def test_a_run_takes_the_program_that_was_made_for_another_shape(
    dynamic_kernels: DynamicKernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, waited = reader(), []
    compiled = CompiledGraph(graph, Options(threads=1, backend="compiled"))
    width, program = known_width(compiled), compiled.builder.program
    monkeypatch.setattr(
        compiled.builder, "program", lambda specs, **given: waited.append(specs) or program(specs, **given)
    )
    found, expected = compiled.run([image(width)]), engine.Session(graph, backend="reference").run([image(width)])
    np.testing.assert_allclose(found[0], expected[0], rtol=2e-4, atol=2e-4)
    assert not waited


def test_a_known_shape_does_not_wait_for_a_compilation(
    dynamic_kernels: DynamicKernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = CompiledGraph(reader(), Options(threads=1))
    width = known_width(compiled)
    is_at_work, may_end = threading.Event(), threading.Event()

    def make(_: Any) -> Any:
        is_at_work.set()
        may_end.wait()
        return compiled.builder.program(specs(200))

    compiling = threading.Thread(target=lambda: compiled.instances.prepare(specs(200), make))
    compiling.start()
    is_at_work.wait()
    found = compiled.instance_soon(specs(width))
    assert found is not None and compiled.instances.find(specs(width)) is found
    met: list[bool] = []
    monkeypatch.setattr(compiled.instances, "begin", lambda specs, is_urgent: met.append(is_urgent))
    compiled.begin(specs(4))
    may_end.set()
    compiling.join()
    compiled.begin(specs(4))
    assert met == [False, True]


def test_shapes_share_code_in_memory_as_long_as_one_of_them_runs(dynamic_kernels: DynamicKernelCache) -> None:
    gc.collect()  # tests before this one had the same code
    compiled = CompiledGraph(reader(), Options(threads=1))
    programs = [compiled.builder.program(specs(width)) for width in range(100, 300, 8)]
    codes = {id(program.code): program.code for program in programs}
    assert len(codes) < len(programs) / 4
    held = [weakref.ref(code) for code in codes.values()]
    del programs, codes, compiled
    gc.collect()
    assert not any(each() for each in held)


def mobile() -> engine.RuntimeGraph:
    """Return a model for pictures of any size: strides, grouped convolutions, a residual, a mean."""
    random = np.random.default_rng(11)
    weight = random.standard_normal((10, 24)).astype(np.float32)
    return built(
        INPUT,
        conv("stem", "0", "1", (3, 16), stride=(2, 2), padding=(1, 1)),
        op("nn.ReLU6", "bound", "1", "2"),
        conv("wide", "2", "3", (16, 48), (1, 1)),
        conv("depth", "3", "4", (48, 48), stride=(2, 2), padding=(1, 1), groups=48),
        conv("narrow", "4", "5", (48, 24), (1, 1)),
        conv("more", "5", "in", (24, 24), padding=(1, 1)),
        conv("groups", "in", "6", (24, 24), padding=(1, 1), groups=12),
        op("pnnx.Expression", "sum", "5 6", "7", expr="add(@0,@1)"),
        op("torch.mean", "mean", "7", "8", dim=(2, 3), keepdim=False),
        op("nn.Linear", "head", "8", "9", in_features=24, out_features=10, bias=False, weight=weight),
        op("pnnx.Output", "out", "9"),
        _0=(1, 3, None, None),
    )  # fmt: skip


def sizes_at_random(count: int, most: int) -> list[tuple[int, int]]:
    random = np.random.default_rng(7)
    return [(int(h), int(w)) for h, w in random.integers(5, most, (count, 2))]


def picture(height: int, width: int) -> Array:
    return np.random.default_rng(height * width).standard_normal((1, 3, height, width), np.float32)


def test_pictures_of_any_height_and_width_give_what_the_reference_gives() -> None:
    graph = mobile()
    reference = engine.Session(graph, backend="reference")
    session = engine.Session(graph, backend="compiled", cache=None, threads=2)
    for size in [(5, 5), (5, 64), (64, 5), (33, 34), (34, 33), *sizes_at_random(12, 70)]:
        found, expected = session.run([picture(*size)])[0], reference.run([picture(*size)])[0]
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def test_after_some_sizes_of_pictures_most_find_a_program(dynamic_kernels: DynamicKernelCache) -> None:
    compiled = CompiledGraph(mobile(), Options(threads=1))
    sizes = sizes_at_random(60, 120)
    for height, width in sizes[:40]:
        compiled.builder.program([TensorSpec((1, 3, height, width), F32)])
    found = [compiled.builder.has_template([TensorSpec((1, 3, *size), F32)]) for size in sizes[40:]]
    assert sum(found) >= 16


def test_what_is_kept_of_a_shape_has_its_weights(tmp_path: Path, dynamic_kernels: DynamicKernelCache) -> None:
    graph = reader()
    made = engine.Session(graph, backend="compiled", cache=tmp_path, threads=1)
    expected = [made.run([image(width)])[0] for width in (40, 24)]
    again = engine.Session(graph, backend="compiled", cache=tmp_path, threads=1)
    np.testing.assert_array_equal(again.run([image(40)])[0], expected[0])
    assert again.describe()["compiler"]["is_cached"]
    np.testing.assert_array_equal(again.run([image(24)])[0], expected[1])


def test_what_another_graph_has_made_code_for_is_kept_for_processes_that_have_none(
    tmp_path: Path, dynamic_kernels: DynamicKernelCache
) -> None:
    engine.Session(reader(), backend="compiled", cache=None, threads=1).run([image(40)])
    for _ in range(2):
        session = engine.Session(reader(), backend="compiled", cache=tmp_path, threads=1)
        session.run([image(40)])
    assert session.describe()["compiler"]["is_cached"]
