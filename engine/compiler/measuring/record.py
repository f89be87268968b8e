"""Selection of the host that kernels are chosen for: by micro-architecture or from ``pnnx-serve calibrate``."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from engine.compiler.cache import folder
from engine.compiler.codegen.host import Host, cpu_name, detect
from engine.compiler.measuring.caches import Caches, find_caches
from engine.compiler.measuring.cost_parameters import NAMES, Rates, host_from_rates
from engine.compiler.measuring.machines import known_rates
from engine.memory.files import check_unshared, open_regular
from engine.memory.resources import available_cores
from engine.options import Options

# Limits of plausible rates: a file with others was not written by this program.
_BELIEVABLE: Final = (1e3, 1e15)
_MAX_BYTES: Final = 1 << 16


def this_host(options: Options) -> Host:
    """Return the machine this process runs on, without measuring.

    Raises:
        CompileError: the processor is not supported.
    """
    return host_by(options.cache)


def host_by(place: Path | None) -> Host:
    """Return the machine as calibrated, else by its micro-architecture, else by its level and caches.

    Args:
        place: folder of the calibration; None for none.

    Raises:
        CompileError: the processor is not supported.
    """
    host, caches = detect(), find_caches()
    rates, known = _stored_rates(host, place, caches), known_rates(host)
    if known is not None:  # a calibration does not include prefetch distances
        rates = replace(known, caches=caches, **{} if rates is None else {name: getattr(rates, name) for name in NAMES})
    return _with_caches(host, caches) if rates is None else host_from_rates(host, rates)


def rates_of(host: Host, place: Path | None, *, again: bool = False) -> Rates:
    """Return the rates of this machine's calibration; without one, measure it once per process.

    Args:
        place: folder of the calibration; None for none.
        again: measure anew and store the result.

    Raises:
        CompileError: there is not enough memory to measure.
    """
    caches = find_caches()
    if again:
        rates = measure(host, caches)
        if place is not None:
            _store(place, _name(host, caches), rates)
        return rates
    return _stored_rates(host, place, caches) or _measured(host, caches)


def measure(host: Host, caches: Caches) -> Rates:
    """Measure this machine; the import is local because starting a server does not need it."""
    from engine.compiler.measuring import bench

    return bench.measure(host, caches)


@cache
def _measured(host: Host, caches: Caches) -> Rates:
    return measure(host, caches)


def _with_caches(host: Host, caches: Caches) -> Host:
    known = host.memory
    return replace(
        host,
        memory=replace(
            known,
            first_bytes=caches.first or known.first_bytes,
            second_bytes=caches.second or known.second_bytes,
            last_bytes=caches.last or caches.second or known.last_bytes,
        ),
    )


def _name(host: Host, caches: Caches) -> str:
    """Return the name of a machine's file, so that different machines can share a folder."""
    machine = (host.key, cpu_name(), asdict(caches), available_cores())
    return f"{hashlib.sha256(repr(machine).encode()).hexdigest()[:32]}.note"


def _store(place: Path, name: str, rates: Rates) -> None:
    """Store rates, ignoring errors."""
    with suppress(OSError), folder.opened(place, make=True) as opened, folder.replacing(opened, name) as file:
        file.write(json.dumps(asdict(rates), indent=1).encode())


def _content(place: Path, name: str) -> bytes:
    """Return the first bytes of a file that no other user can write to.

    Raises:
        OSError: it is missing, or another user can write to it.
    """
    with folder.opened(place, make=False) as opened:
        descriptor = open_regular(name, follow=False, folder=opened)
        try:
            check_unshared(os.fstat(descriptor))
            return os.read(descriptor, _MAX_BYTES)
        finally:
            os.close(descriptor)


def _stored_rates(host: Host, place: Path | None, caches: Caches) -> Rates | None:
    if place is None:
        return None
    try:
        return _rates(json.loads(_content(place, _name(host, caches))), caches)
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _rates(found: Mapping[str, Any], caches: Caches) -> Rates:
    """Parse the rates of a file.

    Raises:
        ValueError, TypeError, KeyError, OverflowError: it was not written by this program.
    """
    numbers: dict[str, Any] = {name: float(found[name]) for name in NAMES}
    least, most = _BELIEVABLE
    if not all(least <= each <= most for each in numbers.values()):
        raise ValueError("implausible rate")
    return Rates(caches=caches, threads=int(found["threads"]), **numbers)


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
