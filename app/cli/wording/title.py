"""What a drawing or a report calls a model."""

from __future__ import annotations

from pathlib import Path


def title(name: str) -> str:
    """The name of a store, or that of a file without its endings: nothing of the folder where somebody had it."""
    return Path(name).name.removesuffix(".param").removesuffix(".pnnx").removesuffix(".onnx")
