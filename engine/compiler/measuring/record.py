"""The machine as it was measured, kept beside what was compiled for it: it is measured once, and not at every start."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from engine.compiler.cache import folder
from engine.compiler.cache.notes import read_note, write_note
from engine.compiler.codegen.host import Host, cpu_name, detect
from engine.compiler.measuring.caches import Caches, find_caches
from engine.compiler.measuring.judging import judge
from engine.compiler.measuring.later import when_quiet
from engine.compiler.measuring.rates import DISTANCES, NAMES, Rates
from engine.errors import CompileError
from engine.memory.resources import available_cores
from engine.options import Options

# How often a machine is measured that is never quiet.
_ENOUGH: Final = 3
# How long another process may take to measure; one that was stopped meanwhile is not waited for.
_PATIENCE_S: Final = 5.0
# What no machine does, and what every one does more than: a file that says so was not written by this program.
_BELIEVABLE: Final = (1e3, 1e15)

_log = logging.getLogger("pnnx_serve.engine")
_lock = threading.Lock()
_known: dict[Path | None, Rates] = {}


def this_host(options: Options) -> Host:
    """The machine this process runs on, as it was measured, or as is usual for its kind.

    Raises:
        CompileError: a processor there is no generator for.
    """
    host = detect()
    if not options.measure_host:
        return host
    try:
        return judge(host, rates_of(host, options.cache))
    except CompileError as error:
        _log.warning("this machine could not be measured, kernels are chosen for what is usual: %s", error)
        return host


def is_measured(options: Options) -> bool:
    """Whether ``this_host`` knows the machine, or is not to know more than its kind."""
    if not options.measure_host or _known:
        return True
    caches = find_caches()
    return options.cache is not None and _read(options.cache, _name(detect(), caches), caches) is not None


def rates_of(host: Host, place: Path | None, *, again: bool = False) -> Rates:
    """What was measured of this machine, in this process or before; it is measured where that was never done.

    Where it was not quiet then, it is measured again when it is, for the processes that come later: what this one
    chooses stays as it is.

    Args:
        place: folder where it is kept; None for nowhere.
        again: measure, whatever is known.

    Raises:
        CompileError: there is no memory to measure.
    """
    with _lock:
        if place in _known and not again:
            return _known[place]
        caches = find_caches()
        if place is None:
            rates = _measured(host, caches, again=again)
        else:
            rates = _obtain(host, caches, place, again=again)
            if not _is_final(rates):
                when_quiet(partial(measure_again, host, place))
        _known[place] = rates
        return rates


def measure_again(host: Host, place: Path) -> bool:
    """Measure a machine that was not quiet before; what is kept is the best of both.

    Returns:
        Whether that is not the last word.
    """
    caches = find_caches()
    with _turn(place):
        before = _read(place, _name(host, caches), caches)
        if before is None or _is_final(before):  # another process did it, or the folder is gone
            return False
        rates = measure(host, caches).best_with(before)
        _write(host, place, rates)
    return not _is_final(rates)


def _is_final(rates: Rates) -> bool:
    return rates.is_quiet or rates.times >= _ENOUGH


def _obtain(host: Host, caches: Caches, place: Path, *, again: bool) -> Rates:
    """What the note says, else what is measured now, which it says then."""
    name = _name(host, caches)
    rates = None if again else _read(place, name, caches)
    if rates is not None:
        return rates
    with _turn(place):
        rates = None if again else _read(place, name, caches)  # whom this one has waited for
        if rates is None:
            rates = _measured(host, caches, again=again)
            _write(host, place, rates)
    return rates


def _write(host: Host, place: Path, rates: Rates) -> None:
    write_note(place, _name(host, rates.caches), json.dumps(asdict(rates), indent=1).encode())


@contextmanager
def _turn(place: Path) -> Iterator[None]:
    """One process measures at a time: two would disturb each other, and keep what differs."""
    with ExitStack() as stack:
        with suppress(OSError):  # nothing can be kept there, or it cannot be locked
            opened, end = stack.enter_context(folder.opened(place, make=True)), time.monotonic() + _PATIENCE_S
            while not _locks(opened) and time.monotonic() < end:
                time.sleep(0.02)
        yield


def _locks(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def measure(host: Host, caches: Caches) -> Rates:
    """What measures is imported where a machine has to be measured: a start from what is known does without."""
    from engine.compiler.measuring import bench

    return bench.measure(host, caches)


def _measured(host: Host, caches: Caches, *, again: bool) -> Rates:
    """What this process has measured already, or measures now."""
    return next(iter(_known.values())) if _known and not again else measure(host, caches)


def _name(host: Host, caches: Caches) -> str:
    """Of a machine's note: those that share a folder and differ have notes of their own."""
    machine = (host.key, cpu_name(), asdict(caches), available_cores())
    return hashlib.sha256(repr(machine).encode()).hexdigest()[:32]


def _read(place: Path, name: str, caches: Caches) -> Rates | None:
    try:
        return _rates(json.loads(read_note(place, name) or b""), caches)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _rates(found: Mapping[str, Any], caches: Caches) -> Rates:
    """Rates of a note.

    Raises:
        ValueError, TypeError, KeyError: it is none of this program.
    """
    numbers = {name: float(found[name]) for name in NAMES}
    fetched, stranded = (tuple(map(float, found[name])) for name in ("fetched", "stranded"))
    least, most = _BELIEVABLE
    if not len(fetched) == len(stranded) or len(fetched) not in (0, len(DISTANCES)):
        raise ValueError("a rate for every distance, or none")
    if not all(least <= each <= most for each in (*numbers.values(), *fetched, *stranded)):
        raise ValueError("no machine is so slow or so fast")
    return Rates(
        caches=caches,
        threads=int(found["threads"]),
        is_quiet=found["is_quiet"] is True,
        times=int(found["times"]),
        fetched=fetched,
        stranded=stranded,
        **numbers,
    )
