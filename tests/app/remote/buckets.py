"""Buckets of object stores, each in a server that others wrote and that runs in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx


class Bucket(ABC):
    """A bucket that is written to as any client would.

    Args:
        client: of its server.
    """

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    @abstractmethod
    def put(self, key: str, data: bytes) -> None:
        """Keep these bytes under that name."""

    def put_folder(self, folder: Path, under: str = "models") -> None:
        """Keep all its files."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(f"{under}/{path.relative_to(folder)}", path.read_bytes())


@contextmanager
def server_process(script: str) -> Iterator[str]:
    """The address of the server that a script beside this one starts: it prints its port, and ends with its input."""
    command = [sys.executable, str(Path(__file__).with_name(script))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.kill()
