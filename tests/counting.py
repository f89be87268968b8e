"""Lines and branches are counted from the first import on, by code that slipcover writes into every module.

It would take that code out again where it has counted, in the middle of a test: it looks through the variables of every
frame for functions, and so holds what they hold. Here it is taken out between two tests: code that counts takes two
fifths longer than code that does not.
"""

from __future__ import annotations

import gc
import sys
from types import FunctionType
from typing import Any, Final

_plugin = sys.modules.get("slipcover.pytest_plugin")
_counter: Final[Any] = None if _plugin is None else _plugin._slipcover_instance
# After how many tests of a process, and then after every so many: most of what is ever counted is so at the beginning.
_FIRST: Final = (10, 50)
_EVERY: Final = 200
_functions: Final[list[FunctionType]] = []
_tests = 0

if _counter is not None:
    _counter.d_miss_threshold = 2**31 - 1
    _counter.source = None  # files that are never imported are added by the process that distributes the tests


def collected() -> None:
    """Remember the functions that count; to be called before what there is by then is set aside."""
    if _counter is not None:
        _functions.extend(_counting())


def ended() -> None:
    """To be called after every test."""
    global _tests
    _tests += 1
    if _counter is not None and (_tests in _FIRST or _tests % _EVERY == 0):
        _stop_where_it_was_counted()


def _stop_where_it_was_counted() -> None:
    with _counter.lock:
        for file, seen in _counter._get_newly_seen().items():
            for code in tuple(_counter.instrumented[file]):
                _counter.deinstrument(code, seen)
            _counter.all_seen[file].update(seen)
        for function in (*_functions, *_counting()):
            function.__code__ = _counter.replace_map.get(function.__code__, function.__code__)
        _counter.replace_map.clear()


def _counting() -> list[FunctionType]:
    """Functions that count, but for those that were set aside."""
    return [
        each for each in gc.get_objects() if type(each) is FunctionType and "__slipcover__" in each.__code__.co_consts
    ]
