"""A report is one file: well-formed, with everything in it, and with nothing to load or to run."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from app.cli import main
from app.console.report import report
from tests.app.client import Client, serving
from tests.app.sample_models import elementwise, write_model

HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m"


class Tags(HTMLParser):
    """Parser that checks that all tags of a page are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)


def tags(page: str) -> set[str]:
    found = Tags()
    found.feed(page.partition("<!doctype html>")[2])
    assert found.open == []
    return found.seen


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("report")
    write_model(store, "one", elementwise("add(@0,mul(@0,2))", "(1,3)f32"))
    write_model(store, "open", elementwise("add(@0,1)", "(?,?)f32"))
    return store


def test_the_command_line_writes_one_file_with_graph_times_and_machine(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    assert main(["report", "one", "--store", str(store), "-o", str(target)]) == 0
    page = target.read_text()
    assert {"svg", "table", "style"} <= tags(page) and not {"script", "link", "img", "iframe"} & tags(page)
    assert "One run" in page and "Kernels" in page and "1×3" in page and "thread 0: busy" in page
    assert not re.search(r"(?:src|href)=|url\(", page)


def test_a_server_hands_it_out_and_says_nothing_of_times_where_sizes_are_open(store: Path) -> None:
    with serving(store, backend="reference") as client:
        answer = client.get("/models/one/report")
        assert answer.headers["content-disposition"] == 'attachment; filename="one.html"'
        assert "'none'" in answer.headers["content-security-policy"] and "One run" in answer.text
        assert "One run" not in client.get("/models/open/report").text
        assert "One run" in client.get("/models/open/report?shape=2,3").text
        assert client.get("/models/open/report?shape=2").status_code == 400
        check_profile(client)


def check_profile(client: Client) -> None:
    told = client.get("/models/one/profile").json()
    assert [row["name"] for row in told["operators"]] == ["expr"] and told["time_us"] > 0
    assert told["host"]["measured"]["flops_per_s"] > 1e6
    refused = client.get("/models/open/profile")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")
    assert client.get("/models/none/profile").status_code == client.get("/models/none/report").status_code == 404


def test_names_of_a_model_are_text() -> None:
    row = {"index": 0, "name": HOSTILE, "type": HOSTILE, "time_us": 1.0, "kernel": HOSTILE}
    description = {
        "name": HOSTILE, "inputs": [{"name": HOSTILE, "shape": None, "dtype": None}], "outputs": [],
        "operators": [row | {"params": {}, "attributes": {}, "inputs": [], "outputs": [HOSTILE]}],
        "operands": {HOSTILE: {"shape": [1], "dtype": "float32"}}, "totals": {}, "warnings": [],
    }  # fmt: skip
    profile = {
        "backend": "reference", "threads": 1, "time_us": 1.0, "operators": [row], "kernels": [], "peak_bytes": 4,
        "host": None,
        "buffers": [{"offset": 0, "bytes": 4, "first": 0, "last": 1, "operands": [HOSTILE], "family": "io"}],
    }  # fmt: skip
    page = report(description, profile)
    assert "peak 4 B" in page
    assert "<script" not in page and "\x1b" not in page and "&lt;script&gt;" in page
    assert "script" not in tags(page)
