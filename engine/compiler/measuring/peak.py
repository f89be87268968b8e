"""Measured peak of a core: fused multiply-adds on registers.

The share of this that a kernel reaches shows how efficient it is, independent of the processor and its clock.
"""

from __future__ import annotations

import numpy as np

from engine.compiler.codegen.host import Host, detect
from engine.compiler.measuring import probes
from engine.compiler.measuring.timing import Probe


def measure_peak(seconds: float = 0.2, host: Host | None = None) -> float:
    """Return the peak floating-point operations per second of one core, the best of many short turns.

    Args:
        seconds: how long to measure.
        host: the processor to generate for; None for this one.

    Raises:
        CompileError: the processor is not supported.
    """
    host = host or detect()
    return 2 * host.lanes * products_a_second(host, seconds)


def products_a_second(host: Host, seconds: float) -> float:
    """Return the rate of independent products of two vectors on registers."""
    count = probes.chains(host)
    probe = Probe("peak", probes.peak(host, count), host)
    return count * probe.turns_a_second(np.full((count + 2) * host.lanes, 0.5, np.float32), seconds)
