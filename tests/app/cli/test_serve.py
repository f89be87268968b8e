"""``serve`` turns flags into settings; what it does with them is the server's own matter."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from app.cli import main
from app.settings import SECRETS, Settings
from app.thread_limits import BLAS_VARIABLES, ThreadBudget


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings of every server that would have been started."""
    seen: list[Settings] = []
    stand_in(monkeypatch, lambda settings, entrance: seen.append(settings) or 0)
    return seen


def stand_in(monkeypatch: pytest.MonkeyPatch, serve: Callable[[Settings, object], int]) -> None:
    """Something else than a server, of a store that is not there; nothing listens meanwhile."""
    monkeypatch.setattr("app.cli.serve.check_store", lambda settings: None)
    monkeypatch.setattr("app.cli.serve.listen", lambda settings: nullcontext())
    monkeypatch.setattr("app.process.server.serve", serve)


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_the_store_is_read_before_the_port_is_bound(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    reason = "No such file or directory"
    if kind == "file":
        store.touch()
        reason = "Not a directory"
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert main(["serve", "--store", str(store), "--port", str(other.getsockname()[1])]) == 1
    assert capsys.readouterr() == ("", f"pnnx-serve: error: the store 'store' cannot be read: {reason}\n")


def test_a_port_in_use_is_reported_where_the_store_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert main(["serve", "--store", str(tmp_path), "--port", str(other.getsockname()[1])]) == 2
    assert "cannot listen on 127.0.0.1 port" in capsys.readouterr().err


def test_flags_become_settings(served: list[Settings]) -> None:
    argv = ["serve", "--store", "s", "--host", "0.0.0.0", "--port", "9000", "--workers", "2", "--threads", "1"]
    assert main(argv) == 0
    expected = Settings(store=Path("s"), host="0.0.0.0", port=9000, workers=2, threads=1)
    assert served == [expected]


def test_flags_stand_over_the_environment(served: list[Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PNNX_SERVE_PORT", "1")
    monkeypatch.setenv("PNNX_SERVE_HOST", "::1")
    main(["serve", "--port", "2"])
    assert (served[0].port, served[0].host) == (2, "::1")


def test_flags_and_the_environment_stand_over_a_file(
    served: list[Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, text in (("one", 'port = 1\nhost = "1"\nmax_queue = 1'), ("two", "port = 2")):
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PNNX_SERVE_CONFIG", "one")
    monkeypatch.setenv("PNNX_SERVE_HOST", "::1")
    main(["serve", "--port", "3"])
    main(["serve", "--config", "two"])
    assert [(each.port, each.host, each.max_queue) for each in served] == [(3, "::1", 1), (2, "::1", 64)]


def test_flags_and_lists_are_understood(served: list[Settings]) -> None:
    main(["serve", "--no-warmup", "--access-log", "--cors-origins", "http://a, http://b", "--log-level", "debug"])
    assert (served[0].warmup, served[0].access_log, served[0].log_level) == (False, True, "debug")
    assert served[0].cors_origins == ("http://a", "http://b")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--otel"], True), (["--no-otel"], False), (["--otel", "true"], True), (["--otel", "False"], False),
        (["--otel=on"], True), (["--otel=0"], False), (["--otel", "1"], True), (["--otel", "no"], False),
        (["--no-otel=true"], False), (["--no-otel=no"], True), (["--otel", "off", "--otel"], True),
        (["--otel", "YES", "--threads", "1"], True), (["--threads", "1", "--otel"], True),
    ],
)  # fmt: skip
def test_a_flag_that_is_a_boolean_takes_a_value(words: list[str], expected: bool, served: list[Settings]) -> None:
    assert main(["serve", *words]) == 0
    assert served[0].otel is expected


@pytest.mark.parametrize("name", [name for name, field in Settings.model_fields.items() if field.annotation is bool])
def test_every_boolean_setting_takes_a_value(name: str, served: list[Settings]) -> None:
    flag = f"--{name.replace('_', '-')}"
    for words, expected in (([flag, "true"], True), ([flag, "false"], False), ([f"{flag}=1"], True)):
        assert main(["serve", *words]) == 0
        assert getattr(served[-1], name) is expected


@pytest.mark.parametrize("value", ["", "maybe", "2", "none"])
def test_a_value_that_is_no_boolean_is_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["serve", f"--otel={value}"])
    assert exit.value.code == 2
    assert f"argument --otel: found '{value}', expected true or false" in capsys.readouterr().err


def test_every_setting_has_its_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    text = capsys.readouterr().out
    assert {name for name in Settings.model_fields if not re.search(rf"--{name.replace('_', '-')}[ ,]", text)} == set(
        SECRETS
    )


def test_a_value_out_of_range_is_a_wrong_call(served: list[Settings], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "70000"]) == 2
    assert capsys.readouterr().err.startswith("pnnx-serve: error: port (PNNX_SERVE_PORT): ")
    assert not served


def test_runs_side_by_side_get_one_blas_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, lambda settings, entrance: 0)
    budget = ThreadBudget(affinity=8, quota=None, setting=None)
    monkeypatch.setattr("app.cli.arguments.options.thread_budget", lambda *_: budget)
    for flags, expected in ((["--max-in-flight", "2"], "4"), ([], "1")):
        for name in BLAS_VARIABLES:
            monkeypatch.delenv(name, raising=False)
        assert main(["serve", *flags]) == 0
        assert [os.environ[name] for name in BLAS_VARIABLES] == [expected] * len(BLAS_VARIABLES)
