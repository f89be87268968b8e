"""GET /models/{name}/quantisation: the report of ``pnnx-serve quantize``, or null; damaged files are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.app.client import serving
from tests.app.console.quantised_model import write_quantised
from tests.app.sample_models import elementwise, write_model


def test_the_report_of_a_version_is_returned_and_its_precision_is_that_of_its_layers(tmp_path: Path) -> None:
    report = write_quantised(tmp_path)
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))
    with serving(tmp_path, backend="reference") as client:
        assert client.get("/models/digits8/quantisation").json() == report
        assert client.get("/models/digits8").json()["versions"][0]["precision"] == "auto"
        page = client.get("/models/digits8/report").text
        assert (
            "6 of 6 layers in bf16 and int8" in page
            and '<th class="n">bf16</th>' in page
            and "95 % confidence -2.30 to +1.30" in page
        )
        assert client.get("/models/one/quantisation").json() is None
        assert client.get("/models/one").json()["versions"][0]["precision"] == "float32"
        assert client.get("/models/two/quantisation").status_code == 404


@pytest.mark.parametrize(("text", "reason"), [
    ("", "quantisation.json is not a report"),
    ("[1]", "quantisation.json is not a report"),
    ('{"kept": "<b>"}', "quantisation.json is not a report"),
    ('{"kept": NaN}', "quantisation.json is not a report"),
    ("[" * 100_000, "quantisation.json is not a report"),
])  # fmt: skip
def test_a_damaged_report_is_refused_and_the_model_serves(text: str, reason: str, tmp_path: Path) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))
    (tmp_path / "one" / "1" / "quantisation.json").write_text(text)
    with serving(tmp_path) as client:
        answer = client.get("/models/one/quantisation")
        assert (answer.status_code, client.infer("one", [[1, 2]]).status_code) == (404, 200)
        assert reason in answer.json()["error"]["message"]
        assert client.get("/models/one/report").status_code == 404


def test_a_link_out_of_the_store_is_not_followed(tmp_path: Path) -> None:
    write_model(tmp_path / "store", "one", elementwise("add(@0,1)", "(?,2)f32"))
    (tmp_path / "secret.json").write_text(json.dumps({"kept": 1.0}))
    (tmp_path / "store" / "one" / "1" / "quantisation.json").symlink_to(tmp_path / "secret.json")
    with serving(tmp_path / "store") as client:
        answer = client.get("/models/one/quantisation")
        assert answer.status_code == 404 and "not a report" not in answer.json()["error"]["message"]


def test_entries_of_a_comparison_have_a_precision(tmp_path: Path) -> None:
    write_quantised(tmp_path)
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))
    with serving(tmp_path, cache=False) as client:
        entries = "one,one:1:compiled:1:bf16,one:1:reference:1:bf16,digits8"
        plan = client.post("/compare", params={"entries": entries}).text.split("\n\n")[0]
        found = json.loads(plan.partition("data: ")[2])["entries"]
        assert [each["precision"] for each in found] == ["float32", "bf16", "float32", "auto"]
        assert client.post("/compare", params={"entries": "one:1:compiled:1:int4"}).status_code == 400
