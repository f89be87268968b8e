"""What a core can do at most: fused multiply-adds on registers, measured.

The share of this that a kernel reaches says how well it is written, whatever the processor and its clock.
"""

from __future__ import annotations

import numpy as np

from engine.compiler.codegen.host import Host, detect
from engine.compiler.measuring import probes
from engine.compiler.measuring.timing import Probe


def measure_peak(seconds: float = 0.2, host: Host | None = None) -> float:
    """Floating-point operations a second of one core, the most of many short turns.

    Args:
        seconds: how long to measure.
        host: the processor to generate for; None for this one.

    Raises:
        CompileError: there is no generator for this processor.
    """
    host = host or detect()
    return 2 * host.lanes * products_a_second(host, seconds)


def products_a_second(host: Host, seconds: float) -> float:
    """Products of two vectors on registers, none of which waits for another."""
    count = probes.chains(host)
    probe = Probe("peak", probes.peak(host, count), host)
    return count * probe.turns_a_second(np.full((count + 2) * host.lanes, 0.5, np.float32), seconds)
