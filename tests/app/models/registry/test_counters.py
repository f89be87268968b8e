"""Figures of several processes as one: nothing that is counted is lost on the way."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from app.models.registry.counters import Counters
from app.models.registry.version import Version
from app.models.statistics import Statistics, Timing
from app.protocol.v2.operations import model_stats
from tests.app.client import serving
from tests.app.sample_models import elementwise, write_model


def counted(requests: int) -> Statistics:
    """Return counters with at least one count of every kind."""
    statistics = Statistics()
    for number in range(requests):
        statistics.succeeded(Timing(queue_s=0.25, infer_s=0.5 * number), 2, 4, is_first=number % 2 == 0)
        statistics.failed("queue_full", 0.125)
    return statistics


def test_figures_of_others_are_added_and_the_latest_time_is_told(tmp_path: Path) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))
    with serving(tmp_path, reload_interval_s=0) as client:
        store = client.plane.store
        (entry,) = store.entries
        (version,) = entry.versions
        assert isinstance(version, Version)
        version.statistics = counted(3)
        theirs = Counters().to_bytes(store.entries)
        version.statistics = counted(2)
        assert store.counters.read()(version).statistics is version.statistics
        store.counters.peers = lambda: [(theirs, True), (theirs, True), (b"[]", True)]
        found = store.counters.read()(version).statistics
        assert (found.requests, found.items, found.failures["queue_full"]) == (8, 16, 8)
        assert (found.sums.queue_s, found.failed_s, found.batches[4].count) == (2.0, 1.0, 5)
        assert sum(found.buckets.total) == 8 and asdict(found).keys() == asdict(version.statistics).keys()
        stats = model_stats(entry, version, found)
        assert stats["inference_count"] == 16 and stats["inference_stats"]["fail"]["count"] == 8
        assert client.get("/models/one").json()["versions"][0]["statistics"]["requests"] == 8


def test_what_a_process_has_counted_that_is_gone_is_told_on_and_once_by_the_one_in_its_place(tmp_path: Path) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))
    with serving(tmp_path, reload_interval_s=0) as client:
        store = client.plane.store
        (version,) = store.entries[0].versions
        version.statistics, version.scheduler._run_queue.pending = counted(3), 4
        left = Counters().to_bytes(store.entries)
        version.statistics, version.scheduler._run_queue.pending = counted(2), 0

        def told(counters: Counters) -> tuple[int, int, int]:
            counted = counters.read()(version)
            return counted.statistics.requests, counted.statistics.failures["queue_full"], counted.queued

        other = Counters()
        other.peers = lambda: [(left, True)]
        assert told(other) == (5, 5, 4)
        other.peers = lambda: [(left, False)]
        assert told(other) == (5, 5, 0)
        successor = Counters()
        successor.begin(left)
        assert told(successor) == (5, 5, 0)
        other.peers = lambda: [(successor.to_bytes(store.entries), True)]
        assert told(other) == (7, 7, 0)
        successor.forget("one")
        assert told(successor) == (2, 2, 0)
        store.counters.begin(left)
        assert client.get("/models/one").json()["versions"][0]["statistics"]["requests"] == 5
        assert client.post("/v2/repository/models/one/unload").status_code == 200
        assert client.post("/v2/repository/models/one/load").status_code == 200
        assert client.get("/models/one").json()["versions"][0]["statistics"]["requests"] == 0
        store.counters.begin(b"")
