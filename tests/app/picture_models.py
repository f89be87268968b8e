"""Small models with images as answers or for drawing on images, written as file pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.app.sample_models import F32, elementwise, write_model

Weights = dict[str, NDArray[np.generic]]
COLOURS = '["red", "green", "blue"]'


def heads(size: tuple[int, int], *outputs: NDArray[np.float32]) -> tuple[list[str], Weights]:
    """Return a network that takes images of a size and gives these outputs, whatever they show."""
    lines = [
        f"pnnx.Input in0 0 1 0 #0=(1,3,{size[0]},{size[1]})f32",
        "nn.AdaptiveAvgPool2d pool 1 1 0 1 output_size=(1,1) #1=(1,3,1,1)f32",
        "torch.flatten flat 1 1 1 2 end_dim=-1 start_dim=1 $input=1 #2=(1,3)f32",
    ]
    weights: Weights = {}
    made = []
    for index, output in enumerate(outputs):
        name, at, shape = f"head{index}", 3 + 2 * index, ",".join(map(str, output.shape))
        lines += [
            f"nn.Linear {name} 1 1 2 {at} bias=True in_features=3 out_features={output.size}"
            f" @bias=({output.size})f32 @weight=({output.size},3)f32 #2=(1,3)f32 #{at}=(1,{output.size})f32",
            f"Tensor.reshape {name}_rows 1 1 {at} {at + 1} shape=(-1,{shape}) #{at + 1}=(1,{shape})f32",
        ]
        weights |= {f"{name}.weight": np.zeros((output.size, 3), np.float32), f"{name}.bias": output.ravel()}
        made.append(str(at + 1))
    if len(made) > 1:
        lines.append(f"prim::TupleConstruct all {len(made)} 1 {' '.join(made)} 99")
    return [*lines, f"pnnx.Output out 1 0 {'99' if len(made) > 1 else made[0]}"], weights


def write_segmenter(store: Path, name: str = "colours", config: str = "") -> None:
    """Write a model for images of 6x8 (height, width); the class of a pixel is its strongest colour."""
    text = f'task = "segmentation"\nlabels = {COLOURS}\n{config}'
    write_model(store, name, elementwise("mul(@0,4)", "(1,3,6,8)f32"), config=text)


def write_enlarger(store: Path, name: str = "double", config: str = "") -> None:
    """Write a model for images of any size; each pixel becomes four of its negative."""
    lines = [
        "pnnx.Input in0 0 1 0 #0=(?,3,?,?)f32",
        "pnnx.Expression negative 1 1 0 1 expr=sub(1,@0) #0=(?,3,?,?)f32 #1=(?,3,?,?)f32",
        "nn.Upsample larger 1 1 1 2 align_corners=None mode=nearest scale_factor=(2.000000e+00,2.000000e+00) size=None"
        " #1=(?,3,?,?)f32 #2=(?,3,?,?)f32",
        "pnnx.Output out 1 0 2 #2=(?,3,?,?)f32",
    ]
    text = f'task = "image"\n[preprocess]\nresize = "none"\nscale = {1 / 255!r}\n{config}[image]\noutput = "out0"\n'
    write_model(store, name, lines, config=f'{text}scale = 255.0\ncolor = "rgb"\n')


def write_yolo(store: Path, name: str = "yolo", decoder: str = "yolov5", config: str = "") -> None:
    """Write a model for letterboxed images of 32x64 (height, width) that always finds a cat twice and a dog."""
    rows = np.array(
        [
            [16, 16, 16, 16, 0.9, 1, 0],
            [17, 16, 16, 16, 0.8, 1, 0],
            [48, 16, 24, 28, 1, 0, 0.75],
            [32, 16, 9, 9, 0, 1, 1],
        ],
        F32,
    )
    if decoder == "yolov8":
        rows = np.concatenate([rows[:, :4], rows[:, 4:5] * rows[:, 5:]], axis=1).T
    shape = f"({rows.shape[0]},{rows.shape[1]})"
    lines = [
        "pnnx.Input in0 0 1 0 #0=(1,3,32,64)f32",
        "torch.flatten flat 1 1 0 1 end_dim=-1 start_dim=1 $input=0 #0=(1,3,32,64)f32 #1=(1,6144)f32",
        f"nn.Linear head 1 1 1 2 bias=True in_features=6144 out_features={rows.size} @bias=({rows.size})f32"
        f" @weight=({rows.size},6144)f32 #1=(1,6144)f32 #2=(1,{rows.size})f32",
        f"Tensor.reshape rows 1 1 2 3 shape=(-1,{shape[1:]} #2=(1,{rows.size})f32 #3=(1,{shape[1:]}f32",
        f"pnnx.Output out 1 0 3 #3=(1,{shape[1:]}f32",
    ]
    weights = {"head.weight": np.zeros((rows.size, 6144), F32), "head.bias": rows.ravel()}
    text = 'task = "detection"\nlabels = ["cat", "dog"]\n[preprocess]\nresize = "letterbox"\n[detection]\n'
    write_model(store, name, lines, weights, f'{text}decoder = "{decoder}"\n{config}')
