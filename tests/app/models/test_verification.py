"""Verification of runs of several items: a wrong answer is logged with its request and counted, a right one is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import engine
from app.models.batcher import Batcher
from app.models.request import InferRequest, Prepared
from app.models.runs import Verification
from app.models.statistics import Timing
from tests.app.client import serving
from tests.app.models.test_batcher import MIXING, held, linear, write_linear
from tests.engine.pnnx.build import pair

X = np.random.default_rng(3).standard_normal((6, 3)).astype(np.float32)
COUNTED = 'pnnx_serve_batch_mismatches_total{model="linear",version="1"}'


def prepared(name: str, tensors: dict[str, NDArray[Any]]) -> Prepared:
    request = InferRequest(decode=lambda _: {}, parameters={})
    return Prepared(
        request=request,
        inputs={},
        tensors=tensors,
        options=None,
        wanted=None,
        timing=Timing(),
        request_id=name,
    )


def outputs_of(graph: engine.RuntimeGraph, x: NDArray[Any]) -> NDArray[Any]:
    return engine.Session(graph, cache=None).run([x])[0]


def test_the_request_whose_item_differs_is_named_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    graph = linear(tmp_path)
    verification, y = Verification("linear", graph), outputs_of(graph, X)
    requests = [prepared(name, {"in0": X[at : at + 2]}) for at, name in ((0, "a"), (2, "b"), (4, "c"))]
    verification.check(requests, [{"out0": y[at : at + 2]} for at in (0, 2, 4)])
    assert not verification.mismatches and not caplog.records
    wrong = y.copy()
    wrong[3, 1] += 0.25
    verification.check(requests, [{"out0": wrong[at : at + 2]} for at in (0, 2, 4)])
    assert verification.mismatches == 1
    (line,) = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert line == (
        "model 'linear': the answer to request b differs from the reference: item 1, output 'out0' by up to 0.25"
        " (its run was shared with requests a, c)"
    )


def test_an_answer_that_depends_on_other_requests_is_found_and_one_that_depends_on_its_own_items_is_right(
    tmp_path: Path,
) -> None:
    graph = engine.load(pair(tmp_path, MIXING, {}))
    verification, together = Verification("mixing", graph), outputs_of(graph, X)
    verification.check([prepared("a", {"in0": X})], [{"out0": together}])
    assert not verification.mismatches
    halves = [prepared("a", {"in0": X[:3]}), prepared("b", {"in0": X[3:]})]
    verification.check(halves, [{"out0": together[:3]}, {"out0": together[3:]}])
    assert verification.mismatches == 2


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1e-42])
def test_what_is_not_finite_is_no_difference_where_the_reference_has_it_too(tmp_path: Path, value: float) -> None:
    graph, x = linear(tmp_path), X.copy()
    x[1, 2] = value
    verification = Verification("linear", graph)
    requests = [prepared(str(at), {"in0": x[at : at + 1]}) for at in range(6)]
    with np.errstate(all="ignore"):
        verification.check(requests, [{"out0": each[None]} for each in outputs_of(graph, x)])
    assert not verification.mismatches


def test_a_check_ends_when_no_client_waits(tmp_path: Path) -> None:
    verification = Verification("linear", linear(tmp_path))
    with engine.cancelling(lambda: True):
        verification.check([prepared("a", {"in0": X})], [{"out0": np.zeros((6, 5), np.float32)}])
    assert not verification.mismatches


def test_setting_verify_batches_has_shared_runs_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_linear(tmp_path, "[batching]\nenabled = true\n")
    rows = [[row.tolist()] for row in X[:4]]
    with serving(tmp_path, threads=1, verify_batches=True) as client:
        held(client, "linear", rows)
        assert f"{COUNTED} 0.0" in client.get("/metrics").text
        run = Batcher.run

        def spoilt(self: Batcher, *given: Any) -> dict[str, NDArray[Any]]:
            outputs = run(self, *given)
            outputs["out0"][0] = np.roll(outputs["out0"][0], 1)
            return outputs

        monkeypatch.setattr(Batcher, "run", spoilt)
        ids = {each.headers["x-request-id"] for each in held(client, "linear", rows)}
        assert f"{COUNTED} 1.0" in client.get("/metrics").text
    (line,) = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert len(ids) == 4 and all(each in line for each in ids)


def test_without_the_setting_nothing_is_verified(tmp_path: Path) -> None:
    write_linear(tmp_path, "[batching]\nenabled = true\n")
    with serving(tmp_path, threads=1) as client:
        held(client, "linear", [[row.tolist()] for row in X])
        assert "batch_mismatches" not in "".join(
            each for each in client.get("/metrics").text.splitlines() if not each.startswith("#")
        )
