"""Record what onnxruntime makes of a sample of all operators in all versions (needs the extra bench)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[3]


def main() -> int:
    """Write operators.npz, a result an array: the key of its call, and its number."""
    sys.path.insert(0, str(ROOT))
    from tests.engine.onnx_files.operators.example import MAKERS
    from tests.engine.onnx_files.operators.running import answer, model, sample, versions

    found: dict[str, Any] = {}
    for operator in sorted(key for key in versions() if key in MAKERS):
        for call in sample(*operator):
            results = answer(call, model(call.example, call.names), call.example.feeds())
            if isinstance(results, str):
                print(f"{call.key}: {results}")
            elif any(each.dtype.kind in "OVU" for each in results):
                continue  # texts, and numbers that numpy cannot store
            else:
                found.update({f"{call.key}#{k}": each for k, each in enumerate(results)})
    np.savez_compressed(Path(__file__).with_name("operators.npz"), **found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
