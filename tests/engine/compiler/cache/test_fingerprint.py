"""The key of a compiled graph: equal for equal graphs, different if anything that code depends on differs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine import RuntimeGraph, TensorSpec
from engine.compiler.cache import fingerprint, version
from engine.compiler.cache.fingerprint import graph_digest, program_key
from engine.compiler.codegen.host import describe, detect
from tests.engine.compiler.cache.keeping import SHAPE, X, compiled, convolution, entries, weight
from tests.engine.graph.build import F32, INPUT, built, op

SPEC = TensorSpec(SHAPE, F32)


def key(graph: RuntimeGraph, spec: TensorSpec = SPEC, *options: str) -> str:
    return program_key(graph, graph_digest(graph), [spec], *options)


def with_operator(**given: Any) -> RuntimeGraph:
    return built(
        INPUT, op("nn.Softmax", "soft", "0", "1", **{"dim": 1, **given}), op("pnnx.Output", "out", "1"), _0=SHAPE
    )


def test_graphs_made_alike_have_one_key() -> None:
    assert key(convolution()) == key(convolution())


def one_bit_off() -> RuntimeGraph:
    changed = weight()
    changed.view(np.uint8).reshape(-1)[-4] ^= 1
    return convolution(weight=changed)


def renamed() -> RuntimeGraph:
    graph = convolution()
    graph.rename("relu", "rectifier")
    graph.build()
    return graph


@pytest.mark.parametrize(
    "make",
    [
        one_bit_off,
        renamed,
        lambda: convolution(weight=weight().astype(np.float64)),
        lambda: convolution(padding_mode="reflect"),
        lambda: convolution(stride=(2, 2)),
        lambda: convolution(stride=[1, 1]),
    ],
)
def test_a_graph_that_differs_has_another_key(make: Callable[[], RuntimeGraph]) -> None:
    assert key(make()) != key(convolution())


@pytest.mark.parametrize("dim", [2, -3, 1.0, True, "1", None])
def test_a_parameter_counts_with_its_kind(dim: object) -> None:
    digests = set()
    for value in (1, dim):
        graph = with_operator()
        graph.source.operators[1].params["dim"] = value  # type: ignore[assignment]
        digests.add(graph_digest(graph))
    assert len(digests) == 2


def test_weights_split_at_another_boundary_have_another_key() -> None:
    def two(first: int) -> RuntimeGraph:
        values = np.arange(6, dtype=np.float32)
        return built(
            op("pnnx.Attribute", "a", "", "0", data=values[:first]),
            op("pnnx.Attribute", "b", "", "1", data=values[first:]),
            op("pnnx.Output", "out_a", "0"),
            op("pnnx.Output", "out_b", "1"),
        )

    assert len({graph_digest(two(first)) for first in range(1, 6)}) == 5


def test_large_weights_are_hashed_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "PIECE_BYTES", 64)
    assert key(one_bit_off()) != key(convolution())
    assert key(convolution()) == key(convolution())


def test_shapes_dtypes_and_options_count() -> None:
    graph = convolution()
    wide, half = TensorSpec((2, *SHAPE[1:]), F32), TensorSpec(SHAPE, np.dtype(np.float16))
    keys = [key(graph), key(graph, wide), key(graph, half), key(graph, SPEC, "a"), key(graph, SPEC, "a", "b")]
    assert len({*keys, key(graph, SPEC, "ab")}) == 6


def test_every_way_to_compile_is_an_entry_of_its_own(tmp_path: Path) -> None:
    ways: list[dict[str, Any]] = [
        {},
        {"winograd": "off"},
        {"precision": "bf16"},
        {"passes_off": frozenset({"constant_folding"})},
        {"passes_off": frozenset({"constant_folding", "fold_batch_norm"})},
        {"host": describe(next(level for level in ("avx2", "sse") if level != detect().name))},
    ]
    for way in ways:
        compiled(tmp_path, **way).builder.program([SPEC])
    assert len(entries(tmp_path)) == len(ways)


def test_another_generator_makes_other_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(tmp_path).run([X])
    monkeypatch.setattr(fingerprint, "GENERATOR", "of tomorrow")
    compiled(tmp_path).run([X])
    assert len(entries(tmp_path)) == 2


def test_a_changed_source_is_another_generator(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    path = tmp_path / "kernels" / "conv.py"
    found = []
    for text in ("a = 1\n", "a = 2\n"):
        path.write_text(text)
        found.append(version.hash_sources(tmp_path))
    path.rename(tmp_path / "conv.py")
    found.append(version.hash_sources(tmp_path))
    assert len(set(found)) == 3


def test_shapes_inferred_by_a_user_layer_count() -> None:
    keys = set()
    for factor in (2, 3):
        with engine.registry.extended() as registry:

            @registry.register("test.Stretch")
            class Stretch(engine.Layer):
                """Repetition whose inferred shape depends on no parameter."""

                def infer(self, x: TensorSpec, factor: int = factor) -> TensorSpec:
                    return TensorSpec((*x.shape[:-1], (x.shape[-1] or 0) * factor), x.dtype)

                def forward(self, x: np.ndarray, factor: int = factor) -> np.ndarray:
                    return np.repeat(x, factor, -1)

            keys.add(key(built(INPUT, op("test.Stretch", "s", "0", "1"), op("pnnx.Output", "out", "1"), _0=SHAPE)))
    assert len(keys) == 2


def test_how_the_user_registers_a_layer_of_the_engine_counts() -> None:
    keys = set()
    for dim in (1, 2):
        with engine.registry.extended() as registry:
            softmax = registry["nn.Softmax"].layer
            registry.register("test.Soft", presets={"dim": dim})(softmax)
            keys.add(key(built(INPUT, op("test.Soft", "s", "0", "1"), op("pnnx.Output", "out", "1"), _0=SHAPE)))
    assert len(keys) == 2


def test_the_version_of_llvmlite_is_the_installed_one() -> None:
    """It is read from a folder's name; importlib.metadata is asked if that fails."""
    assert version._llvmlite() == version._installed_version() == importlib.metadata.version("llvmlite")


@pytest.mark.parametrize("folders", [(), ("llvmlite-1.0.dist-info", "llvmlite-2.0.dist-info")])
def test_without_a_single_dist_info_folder_importlib_metadata_is_asked(
    folders: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llvmlite").mkdir()
    (tmp_path / "llvmlite" / "__init__.py").write_text("")
    for each in folders:
        (tmp_path / each).mkdir()
    spec = importlib.util.spec_from_file_location("llvmlite", tmp_path / "llvmlite" / "__init__.py")
    monkeypatch.setattr(version, "find_spec", lambda name: spec)
    assert version._llvmlite() == importlib.metadata.version("llvmlite")


def test_the_version_is_the_installed_one_if_it_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that cannot import llvmlite finds the cache entries of one that can."""
    monkeypatch.setattr(version, "find_spec", lambda name: None)
    assert version._llvmlite() == importlib.metadata.version("llvmlite")


def test_without_llvmlite_there_is_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(version, "find_spec", lambda name: None)
    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert version._llvmlite() == "none"
