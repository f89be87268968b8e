"""Record the network of examples/custom_operator_model.py with PyTorch's answers.

    python tests/data/plugins/record.py       (needs the export extra)

Writes sub.zip beside this file: the converted pair, and reference.npz with in_0, in_1, out_0, out_1.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import torch

import exporter
from app.models.folder.plugins import load_plugins

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def main() -> None:
    load_plugins([str(EXAMPLES / "custom_operator.py")])
    torch.manual_seed(0)
    model = exporter.load_source(str(EXAMPLES / "custom_operator_model.py:Net"))
    with tempfile.TemporaryDirectory() as folder:
        exporter.export(
            model,
            exporter.parse_inputs(["2,3", "5"]),
            Path(folder),
            module_operators=["custom_operator_model.Sub"],
            reference=Path(folder, "reference.npz"),
        )
        with zipfile.ZipFile(Path(__file__).with_name("sub.zip"), "w", zipfile.ZIP_DEFLATED) as pack:
            for file in sorted(Path(folder).iterdir()):
                pack.writestr(zipfile.ZipInfo(file.name, (1980, 1, 1, 0, 0, 0)), file.read_bytes())


if __name__ == "__main__":
    main()
