"""Models of the protocol's tests: one with named ports, and one of every dtype."""

from __future__ import annotations

from pathlib import Path

from tests.app.sample_models import elementwise, through, write_classifier, write_detector, write_model

# What the protocol calls the dtypes of files.
DATATYPES = {
    "bool": "BOOL", "u8": "UINT8", "i8": "INT8", "i16": "INT16", "i32": "INT32", "i64": "INT64",
    "f16": "FP16", "bf16": "BF16", "f32": "FP32", "f64": "FP64",
}  # fmt: skip
LABELS = [f"label{index}" for index in range(16)]


def write_simple(store: Path) -> None:
    """Write the model of the protocol's recorded exchanges: INPUT0 + 1."""
    lines = [
        "pnnx.Input INPUT0 0 1 INPUT0 #INPUT0=(?,16)f32",
        "pnnx.Expression expr 1 1 INPUT0 OUTPUT0 expr=add(@0,1) #INPUT0=(?,16)f32 #OUTPUT0=(?,16)f32",
        "pnnx.Output out 1 0 OUTPUT0 #OUTPUT0=(?,16)f32",
    ]
    write_model(store, "simple", lines, config=f"labels = {LABELS}\n")


def write_v2_zoo(store: Path) -> None:
    """Write all models of the protocol's tests."""
    write_simple(store)
    write_classifier(store)
    write_detector(store)
    write_model(store, "add", elementwise("add(@0,@1)", "(?,2)f32", "(?,2)f32"))
    write_model(store, "fixed", elementwise("add(@0,1)", "(1,3)f32"))
    write_model(store, "inverse", elementwise("div(1,@0)", "(?,3)f32"))
    write_model(store, "waves", through("torch.clone", "(?,2)c64"))
    write_model(store, "fail", through("test.Fail", "(?,2)f32"))
    write_model(store, "image", through("torch.clone", "(?,3,4,6)f32"))
    for code in DATATYPES:
        write_model(store, f"copy_{code}", through("torch.clone", f"(?,3){code}"))


# y = x + state, and y is the next state.
RUNNING_SUM = [
    "pnnx.Input in0 0 1 0 #0=(?,2)f32",
    "pnnx.Input in1 0 1 1 #1=(1,2)f32",
    "pnnx.Expression add 2 1 0 1 2 expr=add(@0,@1) #0=(?,2)f32 #1=(1,2)f32 #2=(?,2)f32",
    "pnnx.Expression next 1 1 2 3 expr=mul(@0,1) #2=(?,2)f32 #3=(?,2)f32",
    "pnnx.Output out0 1 0 2 #2=(?,2)f32",
    "pnnx.Output out1 1 0 3 #3=(?,2)f32",
]


def write_running_sum(store: Path, name: str = "sums", config: str = "") -> None:
    """Write a model whose answer is the sum of all rows of a sequence."""
    write_model(store, name, RUNNING_SUM, config=f"[states]\nout1 = 'in1'\n{config}")
