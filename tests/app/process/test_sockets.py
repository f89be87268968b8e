"""Tests of the listening socket, and of what is imported for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from app.process.sockets import listen
from app.settings import Settings, SettingsError


def test_an_address_that_is_taken_is_reported() -> None:
    with listen(Settings(host="127.0.0.1", port=0)) as other:
        host, port = other.getsockname()
        with pytest.raises(SettingsError, match=f"cannot listen on {host} port {port}"):
            listen(Settings(host=host, port=port))


def test_a_host_that_is_not_a_name_is_reported_with_the_reason() -> None:
    with pytest.raises(SettingsError, match="cannot listen on a..b port 1: ") as told:
        listen(Settings(host="a..b", port=1))
    assert not any(word in str(told.value) for word in ("Unknown error", "Success", "while attempting"))


def test_it_needs_nothing_that_takes_long_to_import() -> None:
    code = "import sys, app.cli.serve; print(*{name.partition('.')[0] for name in sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert not {"numpy", "fastapi", "uvicorn", "PIL", "engine", "llvmlite"} & set(found.stdout.split())
