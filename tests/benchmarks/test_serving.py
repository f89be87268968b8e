"""Cost of a request beside its model: right requests, and the table of measurements."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.serving.__main__ import STORE, Side, report, settle
from benchmarks.serving.cases import Case, cases, write_models
from tests.app.client import serving


def test_every_request_of_the_benchmark_is_answered(tmp_path: Path) -> None:
    write_models(tmp_path, STORE / "digits")
    with serving(tmp_path, backend="reference") as client:
        for case in cases(STORE):
            response = client.post(case.path, content=case.body, headers=case.headers)
            assert response.status_code == 200, (case.name, response.text[:300])


def test_a_message_is_a_request_with_its_length_and_the_floor_s_answer() -> None:
    message = Case(name="x", path="/p", body=b"abc", headers={"Content-Type": "y"}).message(answer_bytes=7)
    head, _, body = message.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /p HTTP/1.1\r\n") and body == b"abc"
    assert {b"Content-Length: 3", b"Content-Type: y", b"X-Answer-Bytes: 7"} <= set(head.split(b"\r\n"))


def test_the_table_divides_by_the_floor() -> None:
    ours, floor = Side([300, 200, 400], [1.0] * 99 + [5.0]), Side([100, 50, 150], [])
    text = report({Case(name="x", path="/", body=b"", most=3): (ours, floor)})
    cells = [cell.strip() for cell in text.splitlines()[-1].strip("|").split("|")]
    assert cells == ["x", "300", "100", "–", "3.00", "4.00", "3", "1.00", "5.00", "5.0"]


def test_to_the_floor_of_a_picture_its_decoding_is_added() -> None:
    (picture,) = [case for case in cases(STORE) if case.is_picture]
    assert 0 < picture.decode_us() < 1e6 and Case(name="x", path="/", body=b"").decode_us() == 0


def test_a_server_that_has_something_of_its_own_to_do_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    times = iter([5.0, 6.0, 6.5, 6.2, 6.21])  # a thread that ends takes its time with it
    settle(SimpleNamespace(cpu_s=lambda: next(times)))  # type: ignore[arg-type]
    assert next(times, None) is None
