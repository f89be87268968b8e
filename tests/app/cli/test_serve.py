"""``serve`` turns flags into settings; what it does with them is the server's own matter."""

from __future__ import annotations

import os
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
    """Something else than a server; nothing listens meanwhile."""
    monkeypatch.setattr("app.cli.serve.early_health", lambda settings: nullcontext())
    monkeypatch.setattr("app.process.server.serve", serve)


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


def test_every_setting_has_its_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    text = capsys.readouterr().out
    assert {name for name in Settings.model_fields if f"--{name.replace('_', '-')} " not in text} == set(SECRETS)


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
