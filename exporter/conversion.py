"""The converter, run as a program: TorchScript file -> PNNX pair.

Its success is judged by the files it writes, not by its exit status: it may crash in the writers of other formats after
the pair is complete. It runs in a folder of its own, so that no files of earlier runs are found.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from app.models.folder.layout import BIN, PARAM
from exporter.errors import ConversionError, last_line
from exporter.inputs import InputSpec

# The converter replaces '-' in the name of its file, so the name has none.
SCRIPT: Final = "model.pt"
ONNX: Final = "model.onnx"

_TIMEOUT_S: Final = 3600
_TELLING: Final = re.compile(r"error|expect|fail|what\(\)|unsupported|not supported|unknown", re.IGNORECASE)


def convert(
    script: Path,
    folder: Path,
    inputs: Sequence[InputSpec],
    second: Sequence[InputSpec] = (),
    *,
    opt_level: int = 2,
    module_operators: Sequence[str] = (),
) -> None:
    """Convert a TorchScript or ONNX file and put the pair into a folder, as model.pnnx.param and model.pnnx.bin.

    Args:
        script: the file.
        inputs, second: shapes and dtypes; dimensions that differ between the two become dynamic.
        opt_level: level of simplification, 0 to 2.
        module_operators: classes (``package.module.Class``) that stay one operator each.

    Raises:
        ConversionError: no pair was written; with the converter's last message.
    """
    with tempfile.TemporaryDirectory(prefix="pnnx-") as scratch:
        name = ONNX if script.suffix == ".onnx" else SCRIPT
        shutil.copyfile(script, Path(scratch, name))
        said = _run([find_converter(), name, *arguments(inputs, second, opt_level, module_operators)], scratch)
        if not (Path(scratch, PARAM).is_file() and Path(scratch, BIN).is_file()):
            raise ConversionError("pnnx wrote no pair", found=telling_line(said))
        folder.mkdir(parents=True, exist_ok=True)
        for name in (PARAM, BIN):
            shutil.copyfile(Path(scratch, name), folder / name)


def arguments(
    inputs: Sequence[InputSpec], second: Sequence[InputSpec], opt_level: int, module_operators: Sequence[str]
) -> list[str]:
    """Return the converter's arguments: key=value, no dashes."""
    found = [f"inputshape={','.join(map(str, inputs))}"] if inputs else []
    found += [f"inputshape2={','.join(map(str, second))}"] if second else []
    found += [f"moduleop={','.join(module_operators)}"] if module_operators else []
    return [*found, f"optlevel={opt_level}", "fp16=0"]


def telling_line(said: str) -> str:
    """Return the last line of the converter's output that looks like a reason."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if _TELLING.search(line)), last_line(said))


def find_converter() -> str:
    """Return the program inside the installed package, or else the one on the path.

    Raises:
        ConversionError: there is none.
    """
    spec = importlib.util.find_spec("pnnx")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for inside in ("pnnx", "bin/pnnx"):
            if Path(folder, inside).is_file():
                return str(Path(folder, inside))
    found = shutil.which("pnnx")
    if found is None:
        raise ConversionError("the converter is missing", expected="pip install pnnx")
    return found


def _run(command: Sequence[str], folder: str) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ConversionError("pnnx did not finish in time", found=f"{_TIMEOUT_S} s") from None
    except OSError as exc:
        raise ConversionError("pnnx cannot be run", where=Path(command[0]).name, found=exc.strerror) from exc
    return (done.stdout + done.stderr).decode(errors="replace")
