"""The collector is away while something is made, and back afterwards, whatever happens."""

from __future__ import annotations

import gc

import pytest

from engine.memory.collecting import without_collector


def test_the_collector_is_away_and_comes_back() -> None:
    assert gc.isenabled()
    with without_collector():
        assert not gc.isenabled()
        with without_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="on the way"), without_collector():
        raise ValueError("on the way")
    assert gc.isenabled()


def test_where_somebody_has_switched_it_off_it_stays_off() -> None:
    gc.disable()
    try:
        with without_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
