"""Random sizes: shapes within their bounds, and the table of measurements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.random_sizes import burst
from benchmarks.random_sizes.__main__ import Row, parts_of, report
from benchmarks.random_sizes.networks import OPEN_NETWORKS
from benchmarks.record import OURS
from tests.app.client import serving


@pytest.mark.parametrize("name", OPEN_NETWORKS)
def test_drawn_shapes_stay_within_their_axes_and_keep_the_fixed_sizes(name: str) -> None:
    network, random = OPEN_NETWORKS[name], np.random.default_rng(0)
    for shape in [network.draw_shape(random) for _ in range(200)] + [network.largest_shape()]:
        for number, size in enumerate(shape):
            if number not in network.axes:
                assert size == network.network.shape[number]
            else:
                axis = network.axes[number]
                assert axis.least <= size <= axis.most and size % axis.step == 0


def test_drawn_sizes_reach_both_ends_of_an_axis() -> None:
    random, network = np.random.default_rng(0), OPEN_NETWORKS["unet"]
    heights = {network.draw_shape(random)[2] for _ in range(400)}
    assert heights == set(range(64, 193, 16))


def test_the_same_shape_gives_every_engine_the_same_input() -> None:
    network = OPEN_NETWORKS["bert_mini"]
    assert np.array_equal(network.input_of((1, 9)), network.input_of((1, 9)))
    assert network.input_of((1, 9)).dtype == np.int64


def test_the_table_divides_the_best_rival_by_ours_for_each_part() -> None:
    rows = [
        Row(network="unet", engine=OURS, times_s=[0.001] * 100 + [0.002] * 400, bytes=[1_000_000, 2_000_000]),
        Row(network="unet", engine="onnxruntime", times_s=[0.004] * 500, bytes=[3_000_000, 3_000_000]),
        Row(network="unet", engine="openvino", failure="cannot load it"),
    ]
    sections = report(rows, 500).split("## ")
    first, last = (next(text for text in sections if text.startswith(title)) for title in ("first 100", "last 400"))
    assert first.split("|")[-3].strip() == "4.00"
    assert last.split("|")[-3].strip() == "2.00"
    assert "- unet, openvino: cannot load it" in report(rows, 500)


def test_the_table_says_after_how_many_requests_ours_is_ahead_and_its_slowest_request() -> None:
    rows = [
        Row(network="unet", engine=OURS, times_s=[0.009] * 30 + [0.002] * 70, largest_s=[0.003] * 10),
        Row(network="unet", engine="onnxruntime", times_s=[0.004] * 100),
        Row(network="unet", engine="openvino", times_s=[0.005] * 100),
    ]
    line = report(rows, 100).split("From the first request on")[1].splitlines()[4]
    assert [cell.strip() for cell in line.split("|")[1:-1]] == ["unet", "21", "9.0", "4.0", "3.00"]


def test_a_short_run_has_parts_no_longer_than_itself() -> None:
    assert all(len(range(30)[part]) == 30 for part in parts_of(30).values())


def test_the_table_of_bursts_divides_by_the_p99_alone_and_beside_known_sizes() -> None:
    waits = {"alone": [2.0] * 100, "new": [6.0] * 100, "known": [4.0] * 100}
    row = {"network": "unet", "waits_ms": waits, "burst_ms": {"new": [50.0, 60.0, 70.0], "known": [40.0]}}
    cells = [cell.strip() for cell in burst.report([row]).splitlines()[-1].strip("|").split("|")]
    assert cells == ["unet", "2.00", "6.00", "4.00", "3.00", "1.50", "60", "40"]


def test_the_request_of_a_burst_is_answered(tmp_path: Path) -> None:
    lines = ["7767517", "3 2", "pnnx.Input input 0 1 0 #0=(1,3,?,?)f32",
             "pnnx.Expression e 1 1 0 1 expr=add(@0,1.0)", "pnnx.Output out 1 0 1"]  # fmt: skip
    version = tmp_path / "varying" / "1"
    version.mkdir(parents=True)
    (version / "model.pnnx.param").write_text("\n".join(lines) + "\n")
    (version / "model.pnnx.bin").write_bytes(b"PK\5\6" + bytes(18))
    request = burst.message("varying", OPEN_NETWORKS["unet"], (1, 3, 16, 32))
    head, _, body = request.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    with serving(tmp_path, backend="reference") as client:
        headers = dict(field.split(": ") for field in fields)
        response = client.post(line.split()[1], content=body, headers=headers)
    assert response.status_code == 200, response.text[:300]
