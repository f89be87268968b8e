"""Settings of all tests."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
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

# Lines these run were run before by the tests beside them; they vary numbers. Counting lines doubles their time.
UNCOUNTED: Final = (
    "app/http/test_any_data.py",
    "app/models/keeping/test_cycles.py",
    "app/test_linear.py",
    "engine/compiler/kernels/functions/test_math.py",
    "engine/compiler/kernels/winograd/test_winograd.py",
    "engine/compiler/lowering/rules/elementwise/test_elements.py",
    "engine/compiler/lowering/terms/test_terms.py",
    "engine/compiler/test_bounds.py",
    "engine/compiler/codegen/test_hosts.py",
    "engine/compiler/kernels/test_large.py",
    "engine/compiler/test_random_graphs.py",
    "engine/compiler/test_samples.py",
    "engine/expression/test_functions.py",
    "fuzz/",
    "engine/graph/planning/test_order.py",
    "engine/graph/test_hostile_graphs.py",
    "engine/layers/definition/test_attributes.py",
    "engine/layers/test_layers.py::test_inference",
    "engine/layers/test_layers.py::test_strided",
    "engine/passes/test_all.py",
    "engine/passes/test_random_graphs.py",
    "engine/pnnx/test_mutations.py",
    "engine/pnnx/test_roundtrip.py",
    "app/render/test_layout.py",
    "engine/test_corpus.py",
    "docs/test_operators_doc.py::test_compiled_are",
)
# Of a test with many cases the first few run what the others do, but for tables of different things.
COUNTED_CASES: Final = 4
TABLES: Final = ("engine/layers/", "engine/expression/", "app/codec/")
# What is made for these is made by the lines that make it for the first one.
OTHER_LEVELS: Final = ("avx2", "sse")


_is_counted: Final = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Count no lines under tests that repeat what others run."""
    root, cases, paths = Path(__file__).parent, Counter[tuple[str, str]](), dict[Path, str]()
    for item in items:
        path = paths.get(item.path) or paths.setdefault(item.path, item.path.relative_to(root).as_posix())
        test = getattr(item, "originalname", item.name)
        cases[path, test] += 1
        is_enough = cases[path, test] > COUNTED_CASES and not path.startswith(TABLES)
        is_repetition = f"{path}::{item.name}".startswith(UNCOUNTED) or _is_repetition(item)
        item.stash[_is_counted] = not is_enough and not is_repetition


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Count lines under a test and its fixtures, or do not; what stays as it was costs nothing."""
    counting = getattr(item.config.pluginmanager.getplugin("_cov"), "cov_controller", None)
    if counting is not None and counting.started != item.stash[_is_counted]:
        (counting.resume if item.stash[_is_counted] else counting.pause)()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Who hands tests out to others runs none: to count its own lines takes as long as a hundred tests."""
    counting = getattr(config.pluginmanager.getplugin("_cov"), "cov_controller", None)
    if counting is not None:
        counting.pause()


def _is_repetition(item: pytest.Item) -> bool:
    """Whether it is a property, whose examples are many, or one of a test's other levels of processors."""
    call = getattr(item, "callspec", None)
    level = None if call is None else call.params.get("level")
    return level in OTHER_LEVELS or getattr(getattr(item, "obj", None), "is_hypothesis_test", False)


def pytest_collection(session: pytest.Session) -> None:
    """What is collected all stays: nothing of it is worth being looked at as it grows."""
    if not session.config.pluginmanager.hasplugin("dsession"):  # who hands tests out to others collects none
        gc.disable()


def pytest_collection_finish() -> None:
    """The tests that were collected are no garbage: nobody who collects it has to look through them every time."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)  # what is set aside does not count: of the rest, all would be looked at too often


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
