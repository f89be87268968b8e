"""Stores that tests put somewhere, and what a server answers from them."""

from __future__ import annotations

from pathlib import Path

from tests.app.client import Client
from tests.app.sample_models import elementwise, write_model


def write(store: Path, name: str, term: int) -> None:
    """A model that adds a number."""
    folder = store / name / "1"
    if folder.exists():
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    write_model(store, name, elementwise(f"add(@0,{term})", "(?,2)f32"))


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files by path."""
    return {
        str(path.relative_to(folder.resolve())): path.read_bytes()
        for top in folder.resolve().iterdir()
        for path in ([top] if top.is_file() else [top / part for part in parts(top)])
    }


def parts(folder: Path) -> list[str]:
    """The paths of its files."""
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


def answer(client: Client, model: str = "one") -> float:
    """Return the model's result for zeros; -1 if it does not answer."""
    response = client.infer(model, [[0, 0]])
    return float(response.json()["outputs"]["out0"]["data"][0]) if response.status_code == 200 else -1.0
