"""Kernels at several processor levels: the last case of a test at each, all cases at the host's own."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.engine.compiler.kernels.running import LEVELS
from tests.engine.compiler.lowering.agreeing import begin_case
from tests.nightly import IS_NIGHTLY

FOLDER = Path(__file__).parent
IS_LAST = pytest.StashKey[bool]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `make nightly` alone tries: every case at the levels below the host's."""
    for item in {_test(item): item for item in items if _is_ours(item.path)}.values():
        item.stash[IS_LAST] = True
    last = {_test_and_level(item): item for item in items if _is_at_lower_level(item)}
    if IS_NIGHTLY or not last:
        return
    left_out = [item for item in items if _is_at_lower_level(item) and last[_test_and_level(item)] is not item]
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]


def pytest_runtest_setup(item: pytest.Item) -> None:
    begin_case(is_last=IS_NIGHTLY or item.stash.get(IS_LAST, False))


def _is_at_lower_level(item: pytest.Item) -> bool:
    if not _is_ours(item.path) or not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return False
    takes_levels = any(mark.args[0] == "level" and mark.args[1] is LEVELS for mark in item.iter_markers("parametrize"))
    return takes_levels and item.callspec.params["level"] != LEVELS[0]


def _test_and_level(item: pytest.Item) -> tuple[str, str]:
    return _test(item), item.callspec.params["level"]  # type: ignore[attr-defined]


@cache
def _is_ours(path: Path) -> bool:
    return path.is_relative_to(FOLDER)


def _test(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]
