"""Tests of metrics of several workers: any worker reports all, and counters never decrease."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.metrics.collector import MetricsCollector, from_bytes, merged, to_bytes
from app.process.workers import ROOM, Scoreboard
from app.serving.dataplane import DataPlane
from tests.app.client import serving
from tests.app.sample_models import elementwise, write_model


@pytest.fixture
def planes(tmp_path: Path) -> Iterator[list[DataPlane]]:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))
    with ExitStack() as stack:
        yield [stack.enter_context(serving(tmp_path)).plane for _ in range(2)]


def joined(plane: DataPlane, scoreboard: Scoreboard, worker: int) -> MetricsCollector:
    metrics = MetricsCollector(plane)
    metrics.join(scoreboard.slot(worker), worker)
    return metrics


def responses(metrics: MetricsCollector) -> object:
    return metrics.read()["pnnx_serve_http_responses_total"].get(("200",), 0)


def test_every_worker_reports_all(planes: list[DataPlane]) -> None:
    scoreboard = Scoreboard(2)
    one, two = (joined(plane, scoreboard, index) for index, plane in enumerate(planes))
    one.statuses[200] += 3
    two.statuses[200] += 4
    two.publish()
    assert responses(one) == responses(two) == 7
    told = one.read()
    assert told["pnnx_serve_model_state"]["one", "1", "ready"] == 2
    assert set(told["pnnx_serve_uptime_seconds"]) == {("0",), ("1",)}
    assert set(told["pnnx_serve_build_info"].values()) == {1.0}


def test_what_a_worker_counted_outlives_it_and_what_it_held_does_not(planes: list[DataPlane]) -> None:
    scoreboard = Scoreboard(2)
    one, two = (joined(plane, scoreboard, index) for index, plane in enumerate(planes))
    two.statuses[200] += 4
    assert responses(two) == 4
    scoreboard.clear(1)
    assert responses(one) == 4
    told = one.read()
    assert told["pnnx_serve_model_state"]["one", "1", "ready"] == 1
    assert set(told["pnnx_serve_uptime_seconds"]) == {("0",)}
    assert ("1", "0") in told["python_gc_collections_total"]

    again = joined(planes[1], scoreboard, 1)
    assert responses(one) == 4  # it has yet to say something
    again.statuses[200] += 1
    assert responses(again) == responses(one) == 5
    assert one.read()["pnnx_serve_model_state"]["one", "1", "ready"] == 2


def test_a_worker_that_dies_while_it_writes_leaves_what_it_wrote_before() -> None:
    scoreboard = Scoreboard(2)
    for data in (b"first", b"second"):
        scoreboard.write(1, data)
    place = 4096 + 2 * ROOM
    start = place + 4096 + (1 - scoreboard._memory[place]) * ROOM  # the half that is written next
    scoreboard._memory[start : start + 12] = b"half of some"
    assert scoreboard.read(1) == b"second" and scoreboard.read(0) == b""


def test_figures_that_do_not_fit_are_left_out_and_the_log_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    scoreboard = Scoreboard(2)
    scoreboard.write(0, b"x")
    for _ in range(3):
        scoreboard.write(0, bytes(ROOM))
    assert scoreboard.read(0) == b"x" and len(caplog.records) == 1


def test_figures_survive_the_way_to_another_process(planes: list[DataPlane]) -> None:
    told = MetricsCollector(planes[0]).read()
    assert from_bytes(to_bytes(told)) == merged([told, {}]) == told
