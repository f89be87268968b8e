"""Settings of all tests."""

from __future__ import annotations

from tests import counting  # before what is counted is imported

# isort: split
import gc
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from engine.compiler.codegen.host import detect

# A loaded machine is no failure, and the same commit gives the same verdict everywhere. `make nightly` tries far more,
# and other examples every time.
LENIENT: Final = (HealthCheck.too_slow,)
settings.register_profile("project", max_examples=40, deadline=None, derandomize=True, suppress_health_check=LENIENT)
settings.register_profile("nightly", max_examples=2000, deadline=None, suppress_health_check=LENIENT)
settings.load_profile("project")


def pytest_collection(session: pytest.Session) -> None:
    """What is collected all stays: nothing of it is worth being looked at as it grows."""
    if not session.config.pluginmanager.hasplugin("dsession"):  # who hands tests out to others collects none
        gc.disable()


def pytest_collection_finish() -> None:
    """The tests that were collected are no garbage: nobody who collects it has to look through them every time."""
    gc.enable()
    gc.collect()
    counting.collected()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)  # what is set aside does not count: of the rest, all would be looked at too often


def pytest_runtest_logfinish() -> None:
    counting.ended()


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is compiled is kept in a folder of this run: nothing comes from, or goes to, the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        if sys.dont_write_bytecode:  # else each of some hundred child processes would compile all they import
            patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
            patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("bytecode")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _tests_stay_aside() -> Iterator[None]:
    """Servers in this process look through what is theirs, not through 25,000 tests again at every start and change."""
    with pytest.MonkeyPatch.context() as patch:
        what_they_call = SimpleNamespace(collect=gc.collect, freeze=_no, unfreeze=_no, get_freeze_count=_no)
        patch.setattr("app.memory.collector.gc", what_they_call)
        yield


@pytest.fixture(scope="session", autouse=True)
def _llvm_stays() -> Iterator[None]:
    """What LLVM has in memory is not given back after every program of ten thousand: it would be read again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.compiler.codegen.object_code.give_back", _no)
        yield


def _no() -> int:
    return 0


@pytest.fixture(scope="session", autouse=True)
def _usual_host() -> Iterator[None]:
    """Kernels are chosen for what is usual of this kind of processor, whatever this machine does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.compiler.builder.this_host", lambda options: detect())
        yield
