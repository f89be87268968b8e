"""Small models written as file pairs, and layers that wait or fail on purpose."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import engine
from tests.engine.pnnx.build import pair
from tests.patience import PATIENCE_S, until

F32 = np.float32
# A plugin with an operator that the compiler has a defect for.
FAULTY = """
import engine
from engine.compiler.lowering.rules.registry import KERNEL_RULES

@engine.register("faulty.Twice")
class Twice(engine.Layer):
    def infer(self, input: engine.TensorSpec) -> engine.TensorSpec:
        return input

    def forward(self, input):
        return input + input

def rule(context):
    raise ZeroDivisionError("a fault of the rule")

KERNEL_RULES[Twice] = rule
"""


class Turnstile:
    """Lets runs in one by one: a run announces itself, then waits until it is let through."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.passes = threading.Semaphore(0)

    def go_through(self) -> None:
        self.entered.release()
        assert self.passes.acquire(timeout=PATIENCE_S), "the run was not released"

    def wait_until_entered(self) -> None:
        assert self.entered.acquire(timeout=PATIENCE_S), "no run came"

    def let_through_until(self, is_over: Callable[[], object]) -> None:
        """Let cancelled runs through, some of which may never have arrived."""

        def passed() -> object:
            if self.entered.acquire(timeout=0):
                self.passes.release()
            return is_over()

        until(passed)

    def let_through(self, runs: int = 1) -> None:
        self.passes.release(runs)


TURNSTILE = Turnstile()


@engine.register("test.Wait")
class Wait(engine.Layer):
    """Layer that returns its input once the turnstile lets it through."""

    def infer(self, input: engine.TensorSpec) -> engine.TensorSpec:
        return input

    def forward(self, input: NDArray[np.float32]) -> NDArray[np.float32]:
        TURNSTILE.go_through()
        return input


@engine.register("test.Fail")
class Fail(engine.Layer):
    """Layer that fails unless its input is zeros, with a message that clients must not see."""

    def infer(self, input: engine.TensorSpec) -> engine.TensorSpec:
        return input

    def forward(self, input: NDArray[np.float32]) -> NDArray[np.float32]:
        if input.any():
            raise RuntimeError("secret path /etc/secret")
        return input


def write_model(
    store: Path, name: str, lines: list[str], weights: Mapping[str, NDArray[np.generic]] | None = None,
    config: str | None = None, version: int = 1,
) -> None:  # fmt: skip
    """Write a model into a store."""
    folder = store / name / str(version)
    folder.mkdir(parents=True)
    pair(folder, lines, {key: array.tobytes() for key, array in (weights or {}).items()})
    if config is not None:
        (store / name / "config.toml").write_text(config)


def elementwise(expression: str, *shapes: str) -> list[str]:
    """Return a model of one expression; shapes as in the file, such as "(1,3)f32"; the output has the first."""
    count = len(shapes)
    inputs = [f"pnnx.Input in{i} 0 1 {i} #{i}={shape}" for i, shape in enumerate(shapes)]
    operands = " ".join(str(i) for i in range(count))
    return [
        *inputs,
        f"pnnx.Expression expr {count} 1 {operands} {count} expr={expression} #{count}={shapes[0]}",
        f"pnnx.Output out 1 0 {count} #{count}={shapes[0]}",
    ]


def through(type: str, shape: str) -> list[str]:
    """Return a model of one operator that keeps the shape."""
    return [
        f"pnnx.Input in0 0 1 0 #0={shape}",
        f"{type} op 1 1 0 1 #0={shape} #1={shape}",
        f"pnnx.Output out 1 0 1 #1={shape}",
    ]


def write_classifier(store: Path, name: str = "shades", config: str | None = None, version: int = 1) -> None:
    """Write a model for grey images of 2x2; the score of class i is 10 times pixel i, for the first three."""
    lines = [
        "pnnx.Input in0 0 1 0 #0=(1,1,2,2)f32",
        "torch.flatten flat 1 1 0 1 end_dim=-1 start_dim=1 $input=0 #0=(1,1,2,2)f32 #1=(1,4)f32",
        "nn.Linear head 1 1 1 2 bias=True in_features=4 out_features=3 @bias=(3)f32 @weight=(3,4)f32"
        " #1=(1,4)f32 #2=(1,3)f32",
        "pnnx.Output out 1 0 2 #2=(1,3)f32",
    ]
    weights = {"head.weight": (10 * np.eye(3, 4)).astype(F32), "head.bias": np.zeros(3, F32)}
    if config is None:
        config = 'task = "classification"\nlabels = ["left", "right", "below"]\n'
    write_model(store, name, lines, weights, config, version)


def write_detector(store: Path, name: str = "boxes", config: str = "") -> None:
    """Write a model for images of 4x8 (height, width) with three anchors: two boxes overlap, one is background."""
    scores = np.array([[0.1, 0.9], [0.2, 0.8], [0.95, 0.05]], F32)
    boxes = np.array([[0.25, 0.5, 0.5, 1.0], [0.25, 0.5, 0.5, 0.9], [0, 0, 1, 1]], F32)
    lines = ["pnnx.Input in0 0 1 0 #0=(1,3,4,8)f32",
             "torch.flatten flat 1 1 0 1 end_dim=-1 start_dim=1 $input=0 #0=(1,3,4,8)f32 #1=(1,96)f32"]  # fmt: skip
    weights = {}
    for index, (key, values) in enumerate((("scores", scores), ("boxes", boxes))):
        made, size, columns = 2 + 2 * index, values.size, values.shape[1]
        lines += [
            f"nn.Linear {key} 1 1 1 {made} bias=True in_features=96 out_features={size} @bias=({size})f32"
            f" @weight=({size},96)f32 #1=(1,96)f32 #{made}=(1,{size})f32",
            f"Tensor.reshape {key}_rows 1 1 {made} {made + 1} shape=(-1,3,{columns})"
            f" #{made}=(1,{size})f32 #{made + 1}=(1,3,{columns})f32",
        ]
        weights |= {f"{key}.weight": np.zeros((size, 96), F32), f"{key}.bias": values.ravel()}
    lines += ["prim::TupleConstruct pair 2 1 3 5 6", "pnnx.Output out 1 0 6"]
    text = f'task = "detection"\nlabels = ["background", "thing"]\n{config}[detection]\nbackground = 0\n'
    write_model(store, name, lines, weights, text)


def write_zoo(store: Path, *, with_failing: bool = True) -> None:
    """Write one model of every kind that the tests use.

    with_failing: also the one whose layer other processes lack.
    """
    write_classifier(store)
    write_detector(store)
    write_model(store, "canvas", elementwise("mul(@0,1)", "(1,3,4,6)f32"))
    write_model(store, "open", elementwise("mul(@0,1)", "(?,3,?,?)f32"), config='[preprocess]\nresize = "none"\n')
    write_model(store, "add", elementwise("add(@0,@1)", "(?,2)f32", "(?,2)f32"))
    write_model(store, "one", elementwise("add(@0,1)", "(?,3)f32"))
    write_model(store, "ints", elementwise("add(@0,1)", "(?,3)i64"))
    write_model(store, "bytes", elementwise("add(@0,1)", "(?,3)u8"))
    write_model(store, "flags", through("torch.clone", "(?,2)bool"))
    write_model(store, "waves", through("torch.clone", "(?,2)c64"))
    write_model(store, "inverse", elementwise("div(1,@0)", "(?,3)f32"))
    if with_failing:
        write_model(store, "fail", through("test.Fail", "(?,2)f32"))
