"""Machines as the table of micro-architectures has them: choices can be looked at without them."""

from __future__ import annotations

from typing import Final

from engine.compiler.codegen.host import Host, describe
from engine.compiler.kernels.winograd.blocking import choose_filtering, offered_for
from engine.compiler.kernels.winograd.transforms import Filtering
from engine.compiler.measuring.cost_parameters import host_from_rates
from engine.compiler.measuring.machines import RATES

MACHINES: Final[dict[str, Host]] = {
    name: host_from_rates(describe(level), rates) for name, (level, rates) in RATES.items()
}
ZEN_3, ZEN_4, ZEN_5 = (MACHINES[f"Zen {number}"] for number in (3, 4, 5))
EMERALD_RAPIDS, GRANITE_RAPIDS = MACHINES["Emerald Rapids"], MACHINES["Granite Rapids"]


def choose_whole(host: Host, stride: int, *sizes: int) -> Filtering | None:
    """Return the 3×3 Winograd convolution chosen for (rows, columns, in_channels, out_channels, batch), or None."""
    return choose_filtering(host, offered_for((3, 3), stride, sizes[1]), *sizes)
