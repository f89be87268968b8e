"""``models``: what a store holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import main


def test_every_model_is_a_row_and_one_that_cannot_be_read_has_its_reason(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / "linear" / "2").mkdir()
    (store / "linear" / "config.toml").write_text('versions = "all"\n[tags]\nstable = 1\ncanary = 2')
    (store / "broken").mkdir()
    (store / "broken" / "config.toml").write_text("nonsense")
    assert main(["models", "--store", str(store)]) == 0
    title, *rows = (line.split(maxsplit=4) for line in capsys.readouterr().out.splitlines())
    assert title == ["MODEL", "VERSIONS", "TAGS", "TASK"]
    by_name = {row[0]: row[1:] for row in rows}
    assert list(by_name) == ["brightness", "broken", "difference", "linear"]
    assert by_name["brightness"] == ["1", "-", "classification"] and by_name["difference"] == ["1", "-", "tensor"]
    assert " ".join(by_name["broken"]).startswith("- - - failed: ")
    assert " ".join(by_name["linear"]).split() == [
        "1,",
        "2",
        "stable=1,",
        "canary=2",
        "tensor",
        "no",
        "model",
        "in",
        "2",
    ]


def test_a_store_without_models_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model_store").mkdir()
    assert main(["models"]) == 0
    assert capsys.readouterr().out == "no models in 'model_store'\n"


@pytest.mark.parametrize("verb", ["models", "serve"])
def test_a_store_that_is_not_there_is_an_error(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--store", "nowhere"]) == 1
    expected = "pnnx-serve: error: the store 'nowhere' cannot be read: No such file or directory\n"
    assert capsys.readouterr() == ("", expected)
