"""Converter as a watched child process: it may hang or take all memory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.files import Files
from benchmarks.memory import resident_bytes
from exporter.conversion import arguments, find_converter, telling_line
from exporter.inputs import InputSpec

TIMEOUT_S: Final = 60.0
MEMORY_BYTES: Final = 3_000_000_000


class ConverterError(Exception):
    """Raised if no PNNX pair was written, with the converter's last output or the reason it was ended."""


def convert(script: Path, inputs: Sequence[InputSpec], files: Files) -> bool:
    """Convert TorchScript to PNNX and ncnn pairs in the network's folder; each is moved there when complete.

    Returns:
        Whether there is an ncnn pair, too: the converter cannot express every network for ncnn.

    Raises:
        ConverterError: there is no PNNX pair.
    """
    with tempfile.TemporaryDirectory(prefix="pnnx-", dir=files.folder) as scratch:
        folder = Path(scratch)
        script.rename(folder / "model.pt")
        command = [find_converter(), "model.pt", *arguments(inputs, (), 2, ())]
        said = _run_watched(command, folder)
        made = [folder / path.name for path in (files.bin, files.param)]
        if not all(path.is_file() for path in made):
            raise ConverterError(telling_line(said))
        _move(made, files.folder)
        ncnn = [folder / path.name for path in (files.ncnn_bin, files.ncnn_param)]
        is_complete = all(path.is_file() for path in ncnn)
        if is_complete:
            _move(ncnn, files.folder)
        return is_complete


def _move(paths: Sequence[Path], folder: Path) -> None:
    for path in paths:
        shutil.move(path, folder / path.name)


def _run_watched(command: Sequence[str], folder: Path) -> str:
    with open(folder / "said.txt", "w+b") as said:
        child = subprocess.Popen(command, cwd=folder, stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
        end = time.monotonic() + TIMEOUT_S
        while child.poll() is None:
            reason = "it ran for too long" if time.monotonic() > end else ""
            if resident_bytes(child.pid) > MEMORY_BYTES:
                reason = "it took too much memory"
            if reason:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                raise ConverterError(f"the converter was ended: {reason}")
            time.sleep(0.1)
        said.seek(0)
        return said.read().decode(errors="replace")
