"""Networks as the converter writes them before it simplifies: optimisation levels 0 and 1.

python tests/data/layers/record.py --folder tests/data/passes unsimplified      (needs the `export` extra)
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "networks"))

import classifiers
import dense_prediction
import mobile
import sequences
import transformers

CHOSEN = (
    "resnet_bottleneck", "densenet", "inception", "deeplab_dynamic", "yolov5_dynamic", "shufflenet", "gru", "bert",
    "gpt_dynamic", "swin",
)  # fmt: skip

SAMPLES = [
    replace(
        sample,
        name=f"{sample.name}_level{level}",
        opt_level=level,
        further=sample.further[:1] if sample.dynamic else (),
    )
    for family in (classifiers, dense_prediction, mobile, sequences, transformers)
    for sample in family.SAMPLES
    if sample.name in CHOSEN
    for level in (0, 1)
]
