"""Response cache of a model: right answers, bounded memory, read-only arrays."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from numpy.typing import NDArray

from app.errors import QueueFullError
from app.memory.reservation import MemoryBudget
from app.models.response_cache import ENTRY_BYTES, ResponseCache, find_hash

F32 = np.float32


def outputs(value: float, size: int = 4) -> dict[str, NDArray[Any]]:
    return {"out0": np.full(size, value, F32)}


def numbered(cache: ResponseCache, number: int) -> bytes:
    return cache.key({"in0": np.array([number])})


def room_for(entries: int, size: int = 4) -> int:
    return entries * (ENTRY_BYTES + 4 * size)


def fill(cache: ResponseCache, count: int, size: int = 4) -> list[bytes]:
    keys = [numbered(cache, number) for number in range(count)]
    for number, key in enumerate(keys):
        cache.put(key, outputs(number, size))
    return keys


@pytest.fixture(params=["fast", "standard library"])
def hashes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "fast":
        pytest.importorskip("xxhash")
    else:
        monkeypatch.setitem(sys.modules, "xxhash", None)


def test_what_was_put_is_found_and_nothing_else() -> None:
    cache = ResponseCache(1 << 20)
    key, other = numbered(cache, 1), numbered(cache, 2)
    cache.put(key, outputs(1))
    found = cache.get(key)
    assert found is not None and found["out0"].tolist() == [1, 1, 1, 1]
    assert cache.get(other) is None


DIFFERENT: list[dict[str, NDArray[Any]]] = [
    {"a": np.array([1, 2], F32)},
    {"b": np.array([1, 2], F32)},
    {"a": np.array([1, 2], np.int32)},
    {"a": np.array([1, 2], F32).view(np.int32)},
    {"a": np.array([[1, 2]], F32)},
    {"a": np.array([[1], [2]], F32)},
    {"a": np.array([2, 1], F32)},
    {"a": np.array([1], F32), "b": np.array([2], F32)},
    {"a": np.array([2], F32), "b": np.array([1], F32)},
    {"a": np.array([], F32), "b": np.array([1, 2], F32)},
    {"a": np.array([1, 2], F32), "b": np.array([], F32)},
    {"a": np.zeros((0, 3), F32)},
    {"a": np.zeros((3, 0), F32)},
    {"a": np.array(0, F32)},
    {"a": np.array([0], F32)},
    {"a": np.array([-0.0], F32)},
    {"a": np.array([0], np.float16)},
    {"a": np.array([0], ml_dtypes.bfloat16)},
    {"a": np.array([0], np.uint16)},
    {"a": np.array([True, False])},
    {"a": np.array([1, 0], np.uint8)},
    {"a": np.array([1 + 2j], np.complex64)},
]


@pytest.mark.usefixtures("hashes")
def test_names_dtypes_shapes_and_bytes_make_the_key() -> None:
    cache = ResponseCache(1, find_hash())
    keys = [cache.key(tensors) for tensors in DIFFERENT]
    assert len(set(keys)) == len(keys) and {len(key) for key in keys} == {16}


@pytest.mark.usefixtures("hashes")
def test_how_a_tensor_lies_in_memory_and_the_order_of_names_make_no_key() -> None:
    cache = ResponseCache(1, find_hash())
    x = np.arange(12, dtype=F32).reshape(3, 4)
    wide = np.zeros((3, 8), F32)
    wide[:, ::2] = x
    fixed = x.copy()
    fixed.setflags(write=False)
    same = [x, np.asfortranarray(x), wide[:, ::2], fixed, np.frombuffer(bytearray(x.tobytes()), F32).reshape(3, 4)]
    assert len({cache.key({"a": each, "b": x}) for each in same} | {cache.key({"b": x, "a": x})}) == 1


@given(
    st.dictionaries(st.text(max_size=3), arrays_of.arrays(np.int8, arrays_of.array_shapes(max_side=3)), max_size=3),
    st.dictionaries(st.text(max_size=3), arrays_of.arrays(np.int8, arrays_of.array_shapes(max_side=3)), max_size=3),
)
def test_two_requests_have_one_key_exactly_when_their_tensors_are_the_same(
    first: dict[str, NDArray[Any]], second: dict[str, NDArray[Any]]
) -> None:
    cache = ResponseCache(1)
    is_same = first.keys() == second.keys() and all(
        first[name].shape == second[name].shape and (first[name] == second[name]).all() for name in first
    )
    assert (cache.key(first) == cache.key(second)) is is_same


@pytest.mark.usefixtures("hashes")
def test_keys_cannot_be_worked_out_without_the_process_s_secret() -> None:
    x = {"a": np.zeros(3, F32)}
    assert ResponseCache(1, find_hash()).key(x) != ResponseCache(1, find_hash()).key(x)


def test_a_cached_answer_is_a_read_only_copy() -> None:
    cache = ResponseCache(1 << 20)
    whole = np.arange(100, dtype=F32)
    key = numbered(cache, 1)
    cache.put(key, {"out0": whole[:2]})
    whole[:] = -1
    found = cache.get(key)
    assert found is not None and found["out0"].tolist() == [0, 1] and found["out0"].base is None
    with pytest.raises(ValueError, match="read-only"):
        found["out0"][0] = 5


def test_those_not_asked_for_the_longest_go_first() -> None:
    cache = ResponseCache(room_for(3))
    keys = fill(cache, 3)
    assert cache.get(keys[0]) is not None
    cache.put(numbered(cache, 99), outputs(99))
    assert [cache.get(key) is not None for key in keys] == [True, False, True]
    assert (cache.entries, cache.held_bytes) == (3, room_for(3))


def test_what_is_larger_than_the_cache_puts_nothing_out() -> None:
    cache = ResponseCache(room_for(2))
    keys = fill(cache, 2)
    cache.put(numbered(cache, 99), outputs(99, 10_000))
    assert all(cache.get(key) is not None for key in keys)


def test_answers_of_nothing_count_too() -> None:
    cache = ResponseCache(10 * ENTRY_BYTES)
    fill(cache, 1000, size=0)
    assert cache.entries == 10


def test_a_closed_cache_keeps_nothing_also_of_runs_that_end_later() -> None:
    cache = ResponseCache(1 << 20)
    keys = fill(cache, 3)
    cache.close()
    assert (cache.entries, cache.held_bytes) == (0, 0)
    cache.put(keys[0], outputs(0))
    assert cache.get(keys[0]) is None


def filled(budget: MemoryBudget, max_bytes: int, count: int, size: int) -> ResponseCache:
    cache = ResponseCache(max_bytes)
    with budget.open() as reservation:
        fill(cache, count, size)
    reservation.close()
    return cache


def test_what_is_kept_counts_in_the_budget_and_not_as_held_by_requests() -> None:
    budget = MemoryBudget(1 << 20)
    cache = filled(budget, 1 << 20, 10, 1000)
    assert budget.kept == cache.held_bytes == room_for(10, 1000) and budget.used == 0
    cache.close()
    assert budget.kept == 0


def test_half_of_the_budget_is_left_to_requests() -> None:
    budget = MemoryBudget(1 << 20)
    cache = filled(budget, 1 << 30, 1000, 1000)
    assert cache.held_bytes == budget.kept <= 1 << 19
    assert cache.entries == (1 << 19) // room_for(1, 1000)


def test_a_request_that_needs_the_memory_gets_it() -> None:
    budget = MemoryBudget(1 << 20)
    cache = filled(budget, 1 << 20, 100, 1000)
    assert cache.held_bytes > 400_000
    with budget.open() as reservation:
        reservation.would_fit(1 << 20)
        reservation.charge(1 << 20)
        assert (cache.held_bytes, budget.kept, budget.used) == (0, 0, 1 << 20)
        with pytest.raises(QueueFullError):
            budget.open().charge(1)
    reservation.close()
    assert budget.used == 0


def test_memory_short_is_asked_back_of_all_who_keep_some() -> None:
    budget = MemoryBudget(1 << 20)
    caches = [filled(budget, 100_000, 20, 1000) for _ in range(3)]
    with budget.open() as reservation:
        reservation.charge(1 << 20)
        assert sum(cache.held_bytes for cache in caches) == 0
    reservation.close()


def test_a_cache_that_is_forgotten_gives_everything_back() -> None:
    budget = MemoryBudget(1 << 20)
    cache = filled(budget, 1 << 20, 10, 1000)
    assert budget.kept
    del cache
    gc.collect()
    assert budget.kept == 0
    with budget.open() as reservation:
        reservation.charge(1 << 20)
    reservation.close()


def test_many_threads_find_right_answers_and_every_byte_is_accounted_for() -> None:
    budget = MemoryBudget(1 << 20)
    cache = ResponseCache(room_for(20, 100))
    barrier = threading.Barrier(8)

    def work(seed: int) -> int:
        chooser, wrong = np.random.default_rng(seed), 0
        barrier.wait()
        with budget.open() as reservation:
            for number in chooser.integers(0, 60, 400).tolist():
                key = numbered(cache, number)
                found = cache.get(key)
                if found is None:
                    cache.put(key, outputs(number, 100))
                else:
                    wrong += bool((found["out0"] != number).any())
                if not number:
                    cache.make_room(5_000)
        reservation.close()
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 0
    assert cache.held_bytes == budget.kept == room_for(cache.entries, 100) <= cache.max_bytes


def test_requests_and_caches_that_take_turns_never_wait_for_each_other() -> None:
    budget = MemoryBudget(200_000)
    caches = [ResponseCache(100_000) for _ in range(2)]
    refused = itertools.count()

    def ask(seed: int) -> None:
        chooser = np.random.default_rng(seed)
        for number in chooser.integers(0, 50, 200).tolist():
            with budget.open() as reservation:
                try:
                    reservation.charge(number * 2_000)
                    cache = caches[number % 2]
                    cache.put(numbered(cache, number), outputs(number, 1000))
                except QueueFullError:
                    next(refused)
            reservation.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
    assert budget.used == 0 and budget.kept == sum(cache.held_bytes for cache in caches)
