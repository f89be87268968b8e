"""The estimated memory of a run compared with its real memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import engine
from tests.engine.pnnx.build import pair

CHAIN = [
    "pnnx.Input in0 0 1 0 #0=(?,4,?,?)f32",
    "nn.Conv2d conv 1 1 0 1 bias=False dilation=(1,1) groups=1 in_channels=4 kernel_size=(3,3) out_channels=16"
    " padding=(1,1) padding_mode=zeros stride=(1,1) @weight=(16,4,3,3)f32 #0=(?,4,?,?)f32 #1=(?,16,?,?)f32",
    "F.relu relu 1 1 1 2 $input=1 #1=(?,16,?,?)f32 #2=(?,16,?,?)f32",
    "pnnx.Expression add 2 1 1 2 3 expr=add(@0,mul(@1,2)) #1=(?,16,?,?)f32 #2=(?,16,?,?)f32 #3=(?,16,?,?)f32",
    "pnnx.Output out 1 0 3 #3=(?,16,?,?)f32",
]
TRANSPOSED = [
    "pnnx.Input in0 0 1 0 #0=(?,4,?,?)f32",
    "nn.ConvTranspose2d up 1 1 0 1 bias=False dilation=(1,1) groups=1 in_channels=4 kernel_size=(4,4) out_channels=8"
    " output_padding=(0,0) padding=(1,1) stride=(1,1) @weight=(4,8,4,4)f32 #0=(?,4,?,?)f32 #1=(?,8,?,?)f32",
    "pnnx.Output out 1 0 1 #1=(?,8,?,?)f32",
]
ATTENTION = [
    "pnnx.Input in0 0 1 0 #0=(?,2,?,8)f32",
    "F.scaled_dot_product_attention att 3 1 0 0 0 1 attn_mask=None dropout_p=0.0 is_causal=False $query=0 $key=0"
    " $value=0 #0=(?,2,?,8)f32 #1=(?,2,?,8)f32",
    "pnnx.Output out 1 0 1 #1=(?,2,?,8)f32",
]
GRAPHS = {
    "chain": (CHAIN, {"conv.weight": np.ones((16, 4, 3, 3), np.float32)}, (2, 4, 300, 200)),
    "transposed": (TRANSPOSED, {"up.weight": np.ones((4, 8, 4, 4), np.float32)}, (1, 4, 200, 100)),
    "attention": (ATTENTION, {}, (1, 2, 1500, 8)),
}


def session(folder: Path, name: str, backend: str = "reference") -> tuple[engine.Session, np.ndarray]:
    lines, weights, shape = GRAPHS[name]
    pair(folder, lines, {key: array.tobytes() for key, array in weights.items()})
    graph = engine.load(folder / "model.pnnx.param")
    return engine.Session(graph, backend=backend, cache=None), np.ones(shape, np.float32)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", GRAPHS)
def test_a_run_takes_no_more_than_estimated_and_the_estimate_is_no_fancy(tmp_path: Path, name: str) -> None:
    runner, x = session(tmp_path, name)
    runner.run([x[..., :8, :8]])
    estimate = runner.estimate_bytes([x])
    tracemalloc.start()
    try:
        runner.run([x])
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken <= 1.05 * estimate + (8 << 20), (taken, estimate)
    assert estimate <= 4 * taken, (taken, estimate)


def test_where_machine_code_is_there_only_the_outputs_are_new(tmp_path: Path) -> None:
    runner, x = session(tmp_path, "chain", "compiled")
    before = runner.estimate_bytes([x])
    (result,) = runner.run([x])
    assert before > result.nbytes == runner.estimate_bytes([x])


def test_the_estimate_grows_with_the_shape_and_knows_the_batch(tmp_path: Path) -> None:
    runner, x = session(tmp_path, "chain")
    assert runner.estimate_bytes({"in0": np.concatenate([x, x])}) == 2 * runner.estimate_bytes({"in0": x})


def test_of_a_run_that_an_operator_refuses_what_came_before_counts(tmp_path: Path) -> None:
    lines = [
        *CHAIN[:3],
        "Tensor.reshape fixed 1 1 2 3 shape=(7,7) #2=(?,16,?,?)f32 #3=(7,7)f32",
        "pnnx.Output out 1 0 3 #3=(7,7)f32",
    ]
    pair(tmp_path, lines, {"conv.weight": bytes(16 * 4 * 9 * 4)})
    runner = engine.Session(engine.load(tmp_path / "model.pnnx.param"), backend="reference")
    x = np.ones((1, 4, 100, 100), np.float32)
    assert runner.estimate_bytes([x]) >= 16 * 100 * 100 * 4
    with pytest.raises(engine.EngineError):
        runner.run([x])


def test_inputs_that_do_not_fit_are_refused_as_a_run_refuses_them(tmp_path: Path) -> None:
    runner, _ = session(tmp_path, "chain")
    with pytest.raises(engine.InputError, match="wrong rank"):
        runner.estimate_bytes([np.ones((3, 3), np.float32)])
