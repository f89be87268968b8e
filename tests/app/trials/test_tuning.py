"""Ways to run a model, measured against each other: which there are, who takes part, and what is told."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

import engine
from app.models.folder.config import parse_config
from app.settings import Settings
from app.trials.sessions import MAX_CANDIDATES, Build, Candidate, Grid, as_served
from app.trials.tuning import Surroundings, advice, tune
from tests.app.sample_models import elementwise
from tests.engine.pnnx.build import pair

QUICK = 0.004


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> engine.Session:
    lines = elementwise("add(mul(@0,3),1)", "(1,4)f32")
    return engine.Session(engine.load(pair(tmp_path_factory.mktemp("tuned"), lines, {})), threads=1, cache=None)


def measured(session: engine.Session, candidates: list[Candidate], **around: Any) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    surroundings = Surroundings(settings=Settings(cache=False), threads=1, **around)
    tune(
        "m",
        session,
        candidates,
        [np.ones((1, 4), np.float32)],
        QUICK,
        surroundings,
        lambda each: events.append({**each}),
    )
    return events


def test_every_combination_is_a_candidate_once_and_the_reference_knows_only_batches() -> None:
    grid = Grid(backend=("compiled", "reference"), threads=(1, 2), batch=(1, 4), winograd=("auto", "off"))
    found = grid.candidates(2)
    assert len(found) == len(set(found)) == 2 * 2 * 2 + 2
    assert [each.batch for each in found if each.build.backend == "reference"] == [1, 4]
    assert {each.build.threads for each in Grid().candidates(6)} == {1, 2, 4, 6}
    precise, rounded = Grid(precision=("float32", "bf16"), threads=(1,)).candidates(1)
    assert (precise.build.precision, rounded.build.precision) == ("float32", "bf16")
    (off,) = Grid(passes_off=(("all",),), threads=(1,)).candidates(1)
    assert off.build.passes_off == engine.PASS_NAMES


@pytest.mark.parametrize(
    "wrong",
    [{"threads": [0]}, {"threads": [True]}, {"threads": []}, {"batch": [0]}, {"batch": [2**31]}, {"batch": [1.5]},
     {"backend": ["gpu"]}, {"passes_off": [["nothing"]]}, {"seconds": 0}, {"seconds": float("nan")},
     {"seconds": 1e9}, {"winograd": ["yes"]}, {"precision": ["int8"]}, {"what": 1}],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Grid.model_validate(wrong)


def test_no_more_threads_than_there_are_and_no_more_candidates_than_are_measured_in_one_go() -> None:
    with pytest.raises(ValueError, match="found 3, expected at most the 2"):
        Grid(threads=(3,)).candidates(2)
    with pytest.raises(ValueError, match=f"at most {MAX_CANDIDATES}"):
        Grid(batch=tuple(range(1, 17)), threads=(1, 2, 3, 4)).candidates(4)


def test_all_are_held_against_the_reference_and_run_in_turn(session: engine.Session) -> None:
    candidates = Grid(backend=("compiled", "reference"), batch=(1, 3), threads=(1,)).candidates(1)
    events = measured(session, candidates)
    plan, done = events[0], events[-1]
    assert [plan["event"], done["event"]] == ["plan", "done"]
    assert [row["id"] for row in plan["candidates"]] == [0, 1, 2, 3] and plan["inputs"] == [[1, 4]]
    assert [row["served"] for row in plan["candidates"]] == [True, False, False, False]
    ready = [each for each in events if each["event"] == "ready"]
    assert all(each["problem"] is None and each["largest"] <= 1e-6 for each in ready) and len(ready) == 4
    rounds = [each for each in events if each["event"] == "times"]
    assert [each["round"] for each in rounds] == [at // 4 + 1 for at in range(4 * plan["rounds"])]
    last = {each["id"]: each for each in rounds}
    assert all(0 < each["least_s"] <= each["median_s"] and each["runs"] >= plan["rounds"] for each in last.values())
    assert done["latency"] in done["best"] and done["throughput"] in done["best"]
    assert all(last[done["latency"]]["median_s"] <= each["median_s"] for each in last.values())


def test_one_that_cannot_run_takes_no_part_and_the_others_do(
    session: engine.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = engine.Session.run

    def sloppy(self: engine.Session, *given: Any, **more: Any) -> engine.Outputs:
        found = run(self, *given, **more)
        if self.options.winograd == "off":
            found[0] += 1
        if self.options.passes_off:
            raise engine.ExecutionError("no")
        return found

    monkeypatch.setattr(engine.Session, "run", sloppy)
    grid = Grid(winograd=("auto", "off"), passes_off=((), ("all",)), threads=(1,))
    events = measured(session, grid.candidates(1))
    problems = [str(each["problem"]) for each in events if each["event"] == "ready"]
    assert problems[0] == "None" and "no" in problems[1] and "found an error of" in problems[2]
    assert {each["id"] for each in events if each["event"] == "times"} == {0} and events[-1]["best"] == [0]


def test_rounds_during_which_a_request_is_served_are_counted(
    session: engine.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.trials.tuning._PATIENCE_S", 0.0)
    events = measured(session, Grid(threads=(1,)).candidates(1), is_quiet=lambda: False)
    assert [each["disturbed"] for each in events if each["event"] == "times"] == list(range(1, 9))


def test_tuning_stops_when_its_client_is_gone(session: engine.Session) -> None:
    with pytest.raises(engine.RunCancelledError):
        measured(session, Grid(threads=(1,)).candidates(1), cancelled=lambda: True)


def test_what_serves_is_left_as_it_is(session: engine.Session) -> None:
    x = [np.ones((1, 4), np.float32)]
    before = session.run(x)[0]
    measured(session, Grid(backend=("reference",)).candidates(1))
    assert session.is_compiled(x) and np.array_equal(session.run(x)[0], before)


def test_what_is_advised_is_a_config_that_can_be_read() -> None:
    build = Build(threads=2, winograd="off", passes_off=("fold_batch_norm",))
    told = advice(Candidate(build=build, batch=4), "net", Settings(), 8)
    wanted = tomllib.loads(told["config"])
    assert wanted == {"threads": 2, "batching": {"enabled": True, "max_batch_size": 4}}
    assert parse_config(json.dumps(wanted)).batching.most == 4
    assert told["settings"].split() == ["PNNX_SERVE_WINOGRAD=off", "PNNX_SERVE_PASSES_OFF=fold_batch_norm"]
    assert told["command"] == "pnnx-serve bench net --batch 4 --threads 2 --winograd off --passes-off fold_batch_norm"
    served = advice(Candidate(build=Build(threads=8)), "net", Settings(), 8)
    assert served["settings"] == "" and tomllib.loads(served["config"]) == {"batching": {"enabled": False}}
    backend = advice(Candidate(build=Build(backend="reference")), "n t", Settings(), 8)
    assert backend["settings"] == "PNNX_SERVE_BACKEND=reference" and "'n t' --backend reference" in backend["command"]


def test_how_it_is_served_is_one_of_the_candidates(tmp_path: Path) -> None:
    graph = engine.load(pair(tmp_path, elementwise("add(@0,1)", "(1,4)f32"), {}))
    off = engine.Session(graph, threads=2, winograd="off", passes_off=["fold_batch_norm"], cache=None)
    assert as_served(off, 8).build == Build(threads=2, winograd="off", passes_off=("fold_batch_norm",))
    assert as_served(engine.Session(graph, "reference"), 8).build == Build(backend="reference", threads=8)
