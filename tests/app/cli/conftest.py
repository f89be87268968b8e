"""A store of small models, and a program whose environment is clean."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from app.settings import PREFIX
from app.thread_limits import BLAS_VARIABLES
from tests.engine.pnnx.build import pair

WEIGHT = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
BIAS = np.array([10, 20], np.float32)

LINEAR = [
    "pnnx.Input in0 0 1 0 #0=(1,3)f32",
    "nn.Linear fc 1 1 0 1 bias=True in_features=3 out_features=2 @bias=(2)f32 @weight=(2,3)f32 #0=(1,3)f32 #1=(1,2)f32",
    "pnnx.Output out0 1 0 1 #1=(1,2)f32",
]
DIFFERENCE = [
    "pnnx.Input pnnx_input_0 0 1 0 #0=(2)f32",
    "pnnx.Input pnnx_input_1 0 1 1 #1=(2)f32",
    "pnnx.Expression minus 2 1 0 1 2 expr=sub(@0,@1) #0=(2)f32 #1=(2)f32 #2=(2)f32",
    "pnnx.Output pnnx_output_0 1 0 2 #2=(2)f32",
]
# Brightness of a grey picture of 2 x 2 as the scores of two classes: dark and bright.
BRIGHTNESS = [
    "pnnx.Input in0 0 1 0 #0=(1,1,2,2)f32",
    "torch.flatten flat 1 1 0 1 start_dim=1 end_dim=-1 #0=(1,1,2,2)f32 #1=(1,4)f32",
    "nn.Linear fc 1 1 1 2 bias=True in_features=4 out_features=2 @bias=(2)f32 @weight=(2,4)f32 #1=(1,4)f32 #2=(1,2)f32",
    "pnnx.Output out0 1 0 2 #2=(1,2)f32",
]
BRIGHTNESS_CONFIG = """task = "classification"
labels = ["dark", "bright"]
[preprocess]
scale = 0.00392156862745098
"""


def write(folder: Path, lines: list[str], **weights: np.ndarray) -> Path:
    """A model in a new folder; double underscores in weight names stand for dots. Its text file."""
    folder.mkdir(parents=True)
    return pair(folder, lines, {name.replace("__", "."): array.tobytes() for name, array in weights.items()})


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    for name in BLAS_VARIABLES:
        monkeypatch.setenv(name, "1")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The models linear, difference and brightness, in the folder the program looks into by default."""
    folder = tmp_path / "model_store"
    write(folder / "linear" / "1", LINEAR, fc__bias=BIAS, fc__weight=WEIGHT)
    write(folder / "difference" / "1", DIFFERENCE)
    rows = np.array([[-1] * 4, [1] * 4], np.float32)
    write(folder / "brightness" / "1", BRIGHTNESS, fc__bias=np.array([2, -2], np.float32), fc__weight=rows)
    (folder / "brightness" / "config.toml").write_text(BRIGHTNESS_CONFIG)
    return folder
