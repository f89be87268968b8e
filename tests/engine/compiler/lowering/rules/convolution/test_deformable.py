"""Deformable convolutions: the reference's answers, wherever offsets point."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engine.compiler.lowering.rules.movement.test_copies import kernels_of
from tests.engine.graph.build import op

RANDOM = np.random.default_rng(43)


def values(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize(
    ("channels", "groups", "offset_groups", "stride"), [(1, 1, 1, 1), (6, 1, 2, 2), (6, 3, 1, 1), (12, 2, 3, 1)]
)
def test_taps_look_where_offsets_say(
    channels: int, groups: int, offset_groups: int, stride: int, has_mask: bool
) -> None:
    given: dict[str, Any] = {
        "in_channels": channels, "out_channels": 2 * groups, "kernel_size": (3, 2), "stride": (stride, 1),
        "padding": (1, 0), "dilation": (1, 2), "groups": groups, "bias": True, "bias_": None,
    }  # fmt: skip
    del given["bias_"]
    given |= {"weight": values(2 * groups, channels // groups, 3, 2)}
    rows, columns = (7 + 2 - 3) // stride + 1, 9 - 3 + 1
    offset = 3 * values(2, 2 * offset_groups * 6, rows, columns)
    offset[0, 0, 0, 0], offset[1, 1, 0, 0] = 1e30, -1e9
    inputs = [values(2, channels, 7, 9), offset]
    if has_mask:
        inputs.append(values(2, offset_groups * 6, rows, columns))
    names = " ".join(str(k) for k, _ in enumerate(inputs))
    given["bias"] = values(2 * groups)
    operators = [op("torchvision.ops.DeformConv2d", "deform", names, "y", **given)]
    assert kernels_of(operators, inputs, "y")["deform"] == "deform"
