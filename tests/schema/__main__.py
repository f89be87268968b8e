"""Check the server against its own OpenAPI document with schemathesis; see ``make schema``.

    python -m tests.schema [--examples 60] [--seed N]

Every operation of the document, the Open Inference Protocol's included, is called with what it allows and with what it
does not, on servers of their own: of the store's models and small ones of every kind, with keys and without. No status
that is not documented, no 500, no other shape or content type than is told, no method taken that is not told.
The exit status is 1 when there was one.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.app.sample_models import write_zoo

_HERE: Final = Path(__file__).parent
_STORE: Final = _HERE.parents[1] / "model_store"
_KEY: Final = "a-key-of-the-schema-test"
# The server's environment, and the header that opens it.
_SERVERS: Final[Mapping[str, tuple[Mapping[str, str], str | None]]] = {
    "without keys": ({}, None),
    "with keys": ({"PNNX_SERVE_KEYS": f"infer,metadata,admin,metrics: {_KEY}"}, f"X-API-Key: {_KEY}"),
}


def write_store(folder: Path) -> None:
    """The project's models, and small ones of every kind; the one whose layer fails on purpose is no part of it."""
    write_zoo(folder, with_failing=False)
    for model in _STORE.iterdir():
        if model.is_dir():
            (folder / model.name).symlink_to(model)


@contextmanager
def serving(store: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The address of a server whose models are loaded."""
    command = [sys.executable, "-m", "app", "serve", "--store", str(store), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1", **environment}
    ) as server:
        try:
            yield _address(server)
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate()


def _address(server: subprocess.Popen[str]) -> str:
    banner = ""
    while "  try  " not in banner:
        line = server.stdout.readline() if server.stdout is not None else ""
        if not line:
            raise RuntimeError(f"the server did not start: {banner}")
        banner += line
    return re.findall(r"console +(http://\S+)/", banner)[0]


def run(url: str, header: str | None, examples: int, seed: int | None) -> bool:
    """Run the schema tool and return whether the server keeps to its document; the tool's files go with its folder."""
    command = [str(Path(sys.executable).with_name("schemathesis"))]
    command += ["--config-file", str(_HERE / "schemathesis.toml"), "run", f"{url}/openapi.json"]
    command += ["--phases", "examples,coverage,fuzzing", "--max-examples", str(examples), "--continue-on-failure"]
    command += ["--generation-database", "none", "--warnings", "off", "--no-color"]
    command += [] if header is None else ["--header", header]
    command += [] if seed is None else ["--seed", str(seed)]
    with tempfile.TemporaryDirectory() as folder:
        return not subprocess.run(command, cwd=folder, check=False).returncode


def main() -> int:
    """Try all servers."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m tests.schema", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--examples", type=int, default=60, help="for each operation (60)")
    parser.add_argument("--seed", type=int, help="of everything (that of schemathesis.toml)")
    options = parser.parse_args()
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        write_store(Path(folder))
        for name, (environment, header) in _SERVERS.items():
            print(f"a server {name}", flush=True)
            with serving(Path(folder), environment) as url:
                if not run(url, header, options.examples, options.seed):
                    failed.append(name)
    print(f"findings in servers {', '.join(failed)}" if failed else "no findings", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
