"""Models of float64 have the kernels that those of float32 have, and keep their digits."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

import engine
from engine import pnnx
from engine.compiler import CompiledGraph
from engine.compiler.assembly import memory
from engine.compiler.codegen.host import describe
from engine.options import Options
from engine.pnnx import Graph
from tests.engine.compiler.doubling import doubled, doubles
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS
from tests.engine.compiler.random_maps import EXACT, SMOOTH
from tests.engine.compiler.random_operators import KERNELS
from tests.engine.compiler.test_random_graphs import grow, hold
from tests.engine.graph.build import F32, conv, op
from tests.engine.layers.samples import all_samples

RANDOM = np.random.default_rng(3)
SAMPLES = {sample.id: sample for sample in all_samples("layers")}


def weights(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(F32)


def network() -> engine.RuntimeGraph:
    """Convolutions, norms, pools, products, softmax and activations, one of each."""
    operators = [
        op("pnnx.Input", "in", "", "0"),
        conv("first", "0", "1", (3, 21), padding=(1, 1), stride=(2, 2)),
        op("nn.GELU", "gelu", "1", "2", approximate="none"),
        conv("deep", "2", "3", (21, 21), padding=(1, 1), groups=21),
        op("nn.BatchNorm2d", "bn", "3", "4", eps=1e-5, num_features=21, affine=False, running_mean=weights(21),
           running_var=np.abs(weights(21))),
        op("nn.SiLU", "silu", "4", "5"),
        op("nn.MaxPool2d", "pool", "5", "6", kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), dilation=(1, 1),
           return_indices=False, ceil_mode=False),
        conv("same", "6", "7", (21, 21), padding=(1, 1)),
        op("pnnx.Expression", "residual", "7 6", "8", expr="add(@0,@1)"),
        op("torch.flatten", "flat", "8", "9", start_dim=2, end_dim=-1),
        op("torch.permute", "turn", "9", "10", dims=(0, 2, 1)),
        op("nn.LayerNorm", "norm", "10", "11", eps=1e-5, elementwise_affine=True, normalized_shape=(21,),
           weight=weights(21), bias=weights(21)),
        op("nn.Linear", "linear", "11", "12", in_features=21, out_features=40, bias=True, weight=weights(40, 21),
           bias_=weights(40)),
        op("torch.permute", "keys", "12", "13", dims=(0, 2, 1)),
        op("torch.matmul", "scores", "12 13", "14"),
        op("F.softmax", "softmax", "14", "15", dim=-1),
        op("torch.matmul", "mixed", "15 12", "16"),
        op("torch.mean", "mean", "16", "17", dim=(1,), keepdim=False),
        op("torch.tanh", "tanh", "17", "18"),
        op("pnnx.Output", "out", "18"),
    ]  # fmt: skip
    linear = next(each for each in operators if each.name == "linear")
    linear.attributes["bias"] = linear.attributes.pop("bias_")
    annotations = {"0": engine.TensorSpec((2, 3, 19, 23), F32)}
    return doubled(Graph(operators, annotations))


@pytest.mark.parametrize("level", LEVELS)
def test_a_network_of_doubles_is_compiled_whole_and_keeps_its_digits(level: str) -> None:
    graph = network()
    x = np.random.default_rng(4).standard_normal((2, 3, 19, 23))
    (wanted,) = engine.Session(graph, backend="reference").run([x])
    for at_end in (True, False):
        compiled = CompiledGraph(graph, Options(threads=2), describe(level))
        (found,) = compiled.run([guarded_array(x, at_end=at_end, dtype="float64")])
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-13)
    rows = engine.Session(graph, backend="compiled", cache=None)
    rows.run([x])
    assert not [row for row in rows.describe()["operators"] if row.get("why")]


@pytest.mark.parametrize(
    ("sample", "type"),
    [
        ("pool-nn_lppool1d", "nn.LPPool1d"),
        ("adaptive_pool-F_adaptive_max_pool2d", "F.adaptive_max_pool2d"),
        ("embedding-nn_Embedding", "nn.Embedding"),
        ("resample-F_upsample_bicubic", "F.upsample"),
        ("conv-F_conv_transpose2d", "F.conv_transpose2d"),
    ],
)
def test_other_operators_of_doubles_have_kernels(sample: str, type: str, tmp_path: Path) -> None:
    found = SAMPLES[sample]
    graph, inputs = doubled(pnnx.read(*found.extract(tmp_path))), doubles(found.sets[0].inputs)
    session = engine.Session(graph, backend="compiled", cache=None)
    for mine, theirs in zip(session.run(inputs), engine.Session(graph, backend="reference").run(inputs), strict=True):
        hold(mine, theirs, False, 1e-12)
    rows = [row for row in session.describe()["operators"] if row["type"] == type]
    assert rows and not [row["why"] for row in rows if row.get("why")]


@pytest.mark.slow
@pytest.mark.parametrize("first", (0, 20))
def test_random_graphs_of_doubles_agree_with_the_reference(first: int) -> None:
    for seed in range(first, first + 8):
        check(seed)


def check(seed: int) -> None:
    growing, outputs = grow(seed, [KERNELS, EXACT, SMOOTH])
    source = growing.finished(outputs).source
    graph, inputs = doubled(source), doubles(growing.feed())
    with np.errstate(all="ignore"):
        wanted = engine.Session(graph, backend="reference").run(inputs)
        session = engine.Session(graph, backend="auto", cache=None, threads=2)
        with patch.object(memory, "SHARED_SHARE", memory.SHARED_SHARE if seed % 3 == 0 else 0):
            session.prepare()
        found = session.run(inputs)
    for mine, theirs, tensor in zip(found, wanted, outputs, strict=True):
        hold(mine, theirs, tensor.is_exact, 1e-11 if theirs.dtype == np.float64 else 1e-4)
