"""Description of this machine as plain data: the measured rates, and the parameters of the cost models."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.compiler.codegen.host import cpu_name, detect
from engine.compiler.measuring.record import host_by, rates_of


def describe(place: Path | None, *, again: bool) -> dict[str, Any]:
    """Return JSON-compatible data.

    Args:
        place: folder of the calibration; None for none.
        again: measure anew and store the result.

    Raises:
        CompileError: the processor is not supported, or there is not enough memory.
    """
    kind = detect()
    rates = rates_of(kind, place, again=again)
    host = host_by(place)
    flops = 2 * kind.lanes
    return {
        "cpu": cpu_name(),
        "level": kind.name,
        "lanes": kind.lanes,
        "registers": kind.registers,
        "caches": {f"{name}_bytes": size for name, size in asdict(rates.caches).items()},
        "measured": {
            "threads": rates.threads,
            "flops_per_s": flops * rates.products,
            "flops_per_s_in_a_chain": flops * rates.chained,
            "repeats_per_s": rates.repeats,
            "second_level_bytes_per_s": rates.second,
            "last_level_bytes_per_s": rates.last,
            "memory_bytes_per_s": rates.memory,
            "memory_bytes_per_s_of_all_cores": rates.memory_shared,
        },
        "costs": {
            "products_in_flight": host.products_in_flight,
            "repeats_a_product": host.repeats_a_product,
            "chunk_flops": host.chunk_flops,
            "ahead_bytes": host.memory.ahead_bytes,
            "strands": host.memory.streams,
            "strand_ahead_bytes": host.memory.stream_ahead_bytes,
            **{name: value for name, value in asdict(host.memory).items() if name.endswith("_cost")},
        },
    }
