"""Record PyTorch's erf, erfc, erfinv, lgamma and digamma: writes special.npz beside this file.

    python record_special.py

``<function>.x`` holds float64 arguments, ``<function>.f64`` and ``<function>.f32`` the answers in both dtypes.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch

SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 1e-30, -1e-30, 1e30, -1e30]
EVERYWHERE = [*SPECIAL, *np.linspace(-12, 12, 211), *(10.0**power for power in range(-20, 20))]
INSIDE = [*SPECIAL, *np.linspace(-1, 1, 201), *(1 - 10.0**power for power in range(-15, 0))]
ARGUMENTS = {
    "erf": EVERYWHERE,
    "erfc": EVERYWHERE,
    "erfinv": INSIDE,
    "lgamma": [*EVERYWHERE, *(1 + 10.0**power for power in range(-15, 0)), *(2 - 10.0**p for p in range(-15, 0))],
    "digamma": EVERYWHERE,
}


def main() -> None:
    arrays = {}
    for name, values in ARGUMENTS.items():
        # float32 values, so that both dtypes are asked the same question
        x = torch.tensor(np.array(values), dtype=torch.float64).float()
        function = getattr(torch, name)
        arrays |= {
            f"{name}.x": x.double().numpy(),
            f"{name}.f64": function(x.double()).numpy(),
            f"{name}.f32": function(x).numpy(),
        }
    np.savez_compressed(Path(__file__).parent / "special.npz", **arrays)


if __name__ == "__main__":
    main()
