"""Selection of the host that kernels are chosen for: by micro-architecture or from ``pnnx-serve calibrate``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from engine.compiler.cache.notes import read_note, write_note
from engine.compiler.codegen.host import Host, cpu_name, detect
from engine.compiler.measuring.caches import Caches, find_caches
from engine.compiler.measuring.cost_parameters import host_from_rates
from engine.compiler.measuring.machines import known_rates
from engine.compiler.measuring.rates import NAMES, Rates
from engine.memory.resources import available_cores
from engine.options import Options

# Limits of plausible rates: a file with others was not written by this program.
_BELIEVABLE: Final = (1e3, 1e15)


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
            write_note(place, _name(host, caches), json.dumps(asdict(rates), indent=1).encode())
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
    """Return the key of a machine's note, so that different machines can share a folder."""
    machine = (host.key, cpu_name(), asdict(caches), available_cores())
    return hashlib.sha256(repr(machine).encode()).hexdigest()[:32]


def _stored_rates(host: Host, place: Path | None, caches: Caches) -> Rates | None:
    if place is None:
        return None
    try:
        return _rates(json.loads(read_note(place, _name(host, caches)) or b""), caches)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _rates(found: Mapping[str, Any], caches: Caches) -> Rates:
    """Parse the rates of a note.

    Raises:
        ValueError, TypeError, KeyError, OverflowError: it was not written by this program.
    """
    numbers: dict[str, Any] = {name: float(found[name]) for name in NAMES}
    least, most = _BELIEVABLE
    if not all(least <= each <= most for each in numbers.values()):
        raise ValueError("implausible rate")
    return Rates(caches=caches, threads=int(found["threads"]), **numbers)
