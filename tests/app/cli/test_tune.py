"""``tune``: ways to run a model, measured; which is fastest is not checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import main


def tuned(*argv: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Status, stdout, stderr."""
    status = main(["tune", *argv, "--seconds", "0.01", "--no-cache"])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_every_candidate_has_a_row_and_the_winner_is_told_as_what_to_write_down(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text, error = tuned(
        "linear", "--threads", "1", "--batch", "1", "3", "--vary", "backend", "winograd", capsys=capsys
    )
    assert (status, error) == (0, "") and "linear · 6 candidates" in text
    rows = text.split("\n\n")[1].splitlines()
    assert rows[0].split() == ["median", "min", "items/s", "error", "candidate"] and len(rows) == 7
    assert "1 thread, batch 1, as served now" in text and "reference, batch 3" in text and "no Winograd" in text
    assert "lowest latency" in text and "highest throughput" in text and "pnnx-serve bench linear" in text


def test_one_that_answers_something_else_is_told_and_is_no_winner(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.trials.tuning.error_share", lambda found, _: float(len(found[0]) == 2))
    status, text, _ = tuned("linear", "--threads", "1", "--batch", "1", "2", capsys=capsys)
    assert status == 1 and "1 thread, batch 2: reference: found an error of" in text
    assert "lowest latency and highest throughput: 1 thread, batch 1" in text


@pytest.mark.parametrize(
    ("argv", "told"),
    [(("linear", "--batch", "1000"), "--batch"), (("linear", "--vary", "all"), "--vary"), (("unknown",), "unknown")],
)
def test_what_cannot_be_meant_is_one_line(
    store: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], told: str
) -> None:
    try:
        status, _, error = tuned(*argv, capsys=capsys)
    except SystemExit as exc:  # argparse's own way
        status, error = int(str(exc.code)), capsys.readouterr().err
    assert status in (1, 2) and told in error and error.count("\n") == 1
