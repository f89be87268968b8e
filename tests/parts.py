"""Parts of the tests: `make test` runs the main part, `make test-all` all, CI the main part and a fifth of the rest.

A part is a list of folders and files, not a mark, so that files of the other part need not be imported.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent
# Folders and files of the rest, from `tests` on: what few changes concern, needs other software, or takes long.
REST: Final = (
    "app/cli/test_export.py",  # the export extra
    "app/cli/test_import_torch.py",  # likewise
    "app/console",  # in a browser
    "app/models/registry/test_cycles.py",  # half a minute of loads beside requests
    "app/process/test_grpc_server.py",  # a server process for each test; app/grpc tests the same calls in this process
    "app/process/test_tls.py",  # likewise
    "app/process/test_workers.py",  # likewise, with two workers; test_server.py in the main part has some as well
    "app/remote",  # stores behind other servers
    "app/scale",  # Ray
    "app/text/test_million.py",  # a million characters by three tokenizers
    "benchmarks",
    "client",  # a distribution of its own
    "deploy",
    "docs",
    "engine/compiler/dynamic/test_racing.py",  # sessions at thirty sizes, in processes of their own
    "engine/compiler/kernels/test_million.py",  # every kernel with sizes of a million
    "engine/compiler/runtime/test_team.py",  # every order in which threads may run the team's protocol
    "engine/onnx_files/test_learning.py",  # exporters of other software
    "engine/onnx_files/test_tokenizer.py",  # onnxruntime and scikit-learn
    "engine/onnx_files/test_written_for_onnxruntime.py",  # onnxruntime
    "exporter",
    "fuzz",
    "test_progress.py",  # tools of the tests themselves
)
FIFTHS: Final = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("parts")
    group.addoption("--part", choices=("main", "rest", "all"), default="all", help="part of the tests to run")
    group.addoption("--fifth-of", metavar="COMMIT", help="of the rest, only the fifth that this commit's hash chooses")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of another part; what stays is for pytest to decide."""
    if collection_path.is_dir() or not collection_path.is_relative_to(TESTS):
        return None
    path = collection_path.relative_to(TESTS)
    return None if is_taken(path, config.getoption("--part"), config.getoption("--fifth-of")) else True


def is_taken(path: Path, part: str, commit: str | None = None) -> bool:
    """Return whether a file below `tests` belongs to a part, or to a commit's fifth of it."""
    if not is_rest(path):
        return part != "rest"
    return part != "main" and (commit is None or is_chosen(path, commit))


def is_rest(path: Path) -> bool:
    """Return whether a path below `tests` belongs to the rest."""
    return any(path.is_relative_to(each) for each in REST)


def is_chosen(path: Path, commit: str) -> bool:
    """Return whether a file of the rest is in the fifth of a commit, given its hexadecimal hash."""
    return zlib.crc32(path.as_posix().encode()) % FIFTHS == int(commit, 16) % FIFTHS
