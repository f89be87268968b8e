"""Fixtures for tests of the console: one server with all kinds of models, one browser."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.app.console.browser import Browser, browsing, missing
from tests.engine.pnnx.build import pair

ROOT = Path(__file__).parents[3]


@contextmanager
def serving(store: Path, **settings: Any) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The URL of a server process whose banner was printed."""
    own = {f"PNNX_SERVE_{key.upper()}": str(value) for key, value in {"port": 0, **settings}.items()}
    environ = {**os.environ, **own, "PNNX_SERVE_STORE": str(store), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "app", "serve"]
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as child:
        try:
            told = ""
            while "  try  " not in told:
                line = child.stdout.readline()  # type: ignore[union-attr]
                assert line, "the server ended"
                told += line
            yield re.findall(r"console +(https?://\S+)/", told)[0], child
        finally:
            child.kill()


def long_lines(blocks: int) -> Iterator[str]:
    """A graph of three operators a block, the last of which joins what the block was given and what it made."""
    spec = "(1,8,12,12)f32"
    pool = "ceil_mode=False dilation=(1,1) kernel_size=(3,3) padding=(1,1) return_indices=False stride=(1,1)"
    yield f"pnnx.Input in0 0 1 x0 #x0={spec}"
    for at in range(blocks):
        x, a, b, y, name = f"x{at}", f"a{at}", f"b{at}", f"x{at + 1}", f"stage{at // 20}.{at % 20}"
        yield f"nn.MaxPool2d {name}.pool 1 1 {x} {a} {pool} #{x}={spec} #{a}={spec}"
        yield f"nn.ReLU {name}.relu 1 1 {a} {b} #{a}={spec} #{b}={spec}"
        yield f"pnnx.Expression expr_{at} 2 1 {x} {b} {y} expr=add(@0,@1) #{x}={spec} #{b}={spec} #{y}={spec}"
    yield f"pnnx.Output out0 1 0 x{blocks} #x{blocks}={spec}"


def write_store(store: Path) -> None:
    """The models of model_store/, one of 302 operators, one like its beginning, and one that cannot be served."""
    shutil.copytree(ROOT / "model_store", store, dirs_exist_ok=True)
    for name, lines in (
        ("long", long_lines(100)),
        ("begun", [line.replace("nn.ReLU stage0.1", "nn.Sigmoid stage0.1") for line in long_lines(3)]),
        ("broken", ["pnnx.Input in0 0 1 0", "my.Unknown what 1 1 0 1", "pnnx.Output out 1 0 1"]),
    ):
        (store / name / "1").mkdir(parents=True)
        pair(store / name / "1", lines, {})


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    store = tmp_path_factory.mktemp("console")
    write_store(store)
    # Each worker of a test run starts one: compiling for it would take longer than all tests of the page together.
    with serving(store, backend="reference") as (url, _):
        yield url


@pytest.fixture(scope="package")
def window(server: str) -> Iterator[Browser]:
    with browsing(server) as browser:
        yield browser


@pytest.fixture
def browser(window: Browser) -> Iterator[Browser]:
    """The window, as large as most, in light colours; what it complains of fails the test."""
    window.size(1280, 800)
    window.scheme("light")
    # A page left by the test before would go on asking a server that may be gone.
    window.driver.get("about:blank")
    window.complaints()
    yield window
    assert window.complaints() == []
