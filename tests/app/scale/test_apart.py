"""A single machine pays nothing for the scale extra: no dependency, no import, no line of the first page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.app.sample_models import elementwise, write_model
from tests.docs.pages import ROOT, blocks, page

OF_MANY = {"ray", "fsspec", "s3fs", "gcsfs", "aiohttp", "aiobotocore", "botocore"}

# A whole server but for the socket, from its command's module to an answer and to the end.
SERVES = """
import asyncio, sys
import app, app.__main__, app.cli.serve, app.process.server
import httpx
from app.http.main import create_app
from app.settings import Settings

async def live():
    served = create_app(Settings.from_env(store=sys.argv[1], threads=1, warmup=False))
    async with served.router.lifespan_context(served):
        await served.state.dataplane.loaded.wait()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url="http://x") as http:
            answer = await http.post("/infer", json={"inputs": [[1, 2]]})
            assert answer.status_code == 200, answer.text

asyncio.run(live())
print(*sys.modules)
"""


def test_a_server_of_a_folder_loads_nothing_that_is_for_many_machines(tmp_path: Path) -> None:
    write_model(tmp_path / "store", "one", elementwise("add(@0,1)", "(?,2)f32"))
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PNNX_SERVE_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", SERVES, str(tmp_path / "store")],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert {"app.http.main", "engine", "uvicorn"} <= loaded
    assert not loaded & OF_MANY and not [name for name in loaded if name.startswith("app.scale")]


def test_it_depends_on_none_of_it_and_the_first_page_names_none_of_it_in_a_command() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert not {re.split(r"[^\w-]", each)[0] for each in project["dependencies"]} & OF_MANY
    typed = "\n".join(each.text for each in blocks(page("README.md")) if each.language in ("console", "sh", "bash"))
    assert "$ " in typed and not re.search(r"\bray\b|\[remote\]|s3://|kubectl|serve deploy", typed)
