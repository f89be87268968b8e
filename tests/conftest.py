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
from engine.memory import resources
from tests import parts, progress
from tests.parts import pytest_ignore_collect  # noqa: F401
from tests.progress import pytest_configure  # noqa: F401

# A loaded machine is no failure, and the same commit gives the same verdict everywhere. `make nightly` tries far more,
# and other examples every time.
LENIENT: Final = (HealthCheck.too_slow,)
# Bytes in the id of a test.
LONGEST_ID: Final = 40
settings.register_profile("project", max_examples=20, deadline=None, derandomize=True, suppress_health_check=LENIENT)
settings.register_profile("nightly", max_examples=2000, deadline=None, suppress_health_check=LENIENT)
settings.load_profile("project")


def pytest_addoption(parser: pytest.Parser) -> None:
    parts.pytest_addoption(parser)
    progress.pytest_addoption(parser)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Return the argument's name for bytes that are not short, readable text; pytest adds a number to equal ids.

    Bytes may contain a time stamp, as those of a zip archive do. Processes that share the tests must collect equal ids.
    """
    is_unreadable = isinstance(val, bytes) and not (
        len(val) <= LONGEST_ID and val.isascii() and val.decode().isprintable()
    )
    return argname if is_unreadable else None


def pytest_collection(session: pytest.Session) -> None:
    """Disable garbage collection during collection: everything collected stays alive."""
    if not session.config.pluginmanager.hasplugin("dsession"):  # who hands tests out to others collects none
        gc.disable()


def pytest_collection_finish() -> None:
    """Freeze the collected tests, so that no garbage collection has to scan them."""
    gc.enable()
    _set_aside()
    gc.set_threshold(10_000, 10, 10)  # what is set aside does not count: of the rest, all would be looked at too often


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Set aside what the tests of a file leave behind: servers collect at every change of a model, 100 ms otherwise."""
    if nextitem is None or nextitem.path != item.path:
        _set_aside()


def _set_aside() -> None:
    """Free what is garbage; let later collections skip what is alive."""
    counting.collected()
    gc.collect()
    gc.freeze()


def pytest_runtest_logfinish() -> None:
    counting.ended()


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use a cache folder of this run, not the user's own."""
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
        patch.setattr("app.memory.machine.gc", what_they_call)
        yield


@pytest.fixture(scope="session", autouse=True)
def _llvm_stays() -> Iterator[None]:
    """Keep memory of LLVM and freed arrays between programs: the next program needs it again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.compiler.codegen.object_code.release_unused", _no)
        patch.setattr("engine.compiler.runtime.memory.trim_heap", _no)
        yield


@pytest.fixture(scope="session", autouse=True)
def _short_runs_use_threads() -> Iterator[None]:
    """Let the small networks of the tests run on all threads they ask for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.compiler.runtime.instance.WORTH_WAKING", 0)
        yield


@pytest.fixture(scope="session", autouse=True)
def _quota_stays() -> Iterator[None]:
    """The processor's quota is read once: every compiled graph would read the files of all control groups twice."""
    read, known = resources.cpu_quota, resources.cpu_quota()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            resources, "cpu_quota", lambda root=resources.ROOT: known if root == resources.ROOT else read(root)
        )
        yield


def _no() -> int:
    return 0


@pytest.fixture(scope="session", autouse=True)
def _usual_host() -> Iterator[None]:
    """Kernels are chosen for what is usual of this kind of processor, whatever this machine does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.compiler.builder.this_host", lambda options: detect())
        yield
