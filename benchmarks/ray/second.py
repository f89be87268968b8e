"""Second replica of a model on the same machine: time to ready, and added memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.ray.world import ROOT

WIDTH: Final = 2048
LAYERS: Final = 4


def run(kind: str) -> dict[str, float]:
    """Return seconds from a process that has imported the service to ready, and its shares of the weights."""
    with tempfile.TemporaryDirectory() as folder:
        weights = write(Path(folder) / "store")
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "PNNX_SERVE_CACHE_DIR": str(Path(folder) / "cache")}
        replicas = []
        try:
            rows = []
            for _ in range(3):  # the first compiles, the others find it
                replicas.append(_start(Path(folder) / "store", environ))
                assert replicas[-1].stdout is not None
                rows.append(json.loads(replicas[-1].stdout.readline()))
                total = sum(pss(each.pid) for each in replicas)
                rows[-1]["total"] = total
            grown = rows[2]["total"] - rows[1]["total"]
            return {
                "weights MB": round(weights / 1e6, 1),
                "first ready s": rows[0]["ready"],
                "third ready s": rows[2]["ready"],
                "compiled by the third": rows[2]["compiled"],
                "Pss added, share of the weights": round((grown - rows[2]["before"]) / weights, 3),
            }
        finally:
            for each in replicas:
                each.kill()
                each.wait()


def _start(store: Path, environ: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.ray.second", str(store)], env=environ, stdout=subprocess.PIPE, text=True
    )


def write(store: Path) -> int:
    """Write a model of linear layers with some 67 MB of weights; return their bytes."""
    import zipfile

    folder = store / "wide" / "1"
    folder.mkdir(parents=True)
    shape = f"(1,{WIDTH})f32"
    lines = ["7767517", f"{LAYERS + 2} {LAYERS + 1}", f"pnnx.Input in0 0 1 0 #0={shape}"]
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(folder / "model.pnnx.bin", "w") as archive:
        for at in range(LAYERS):
            lines.append(
                f"nn.Linear fc{at} 1 1 {at} {at + 1} bias=False in_features={WIDTH} out_features={WIDTH} "
                f"@weight=({WIDTH},{WIDTH})f32 #{at}={shape} #{at + 1}={shape}"
            )
            archive.writestr(f"fc{at}.weight", (rng.random((WIDTH, WIDTH), np.float32) / WIDTH).tobytes())
    lines.append(f"pnnx.Output out 1 0 {LAYERS} #{LAYERS}={shape}")
    (folder / "model.pnnx.param").write_text("\n".join(lines) + "\n")
    return LAYERS * WIDTH * WIDTH * 4


def pss(pid: int) -> int:
    """Return the proportional set size of a process."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("Pss:")).split()[1]) * 1024


def replica(store: Path) -> None:
    """Start what a replica of Ray starts, without Ray."""
    import asyncio

    import engine
    from app.http.main import create_app
    from app.scale.ray.front import share_with_others
    from app.settings import Settings

    before = pss(os.getpid())
    start = time.perf_counter()
    share_with_others()
    app: Any = create_app(Settings.from_env(store=store, threads=1))

    async def live() -> None:
        async with app.router.lifespan_context(app):
            await app.state.dataplane.loaded.wait()
            ready = round(time.perf_counter() - start, 3)
            while engine.compile_metrics().is_compiling:
                await asyncio.sleep(0.1)
            found = {"ready": ready, "compiled": engine.compile_metrics().compiled, "before": before}
            print(json.dumps(found), flush=True)
            await asyncio.Event().wait()

    asyncio.run(live())


if __name__ == "__main__":
    replica(Path(sys.argv[1]))
