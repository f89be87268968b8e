"""Updates under load: of a model's replicas, by another revision, and of its files."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.ray.world import MEMORY, STORE, clients, free_port, settle

UPDATES: Final = 5
PAUSE_S: Final = 3.0


def run(kind: str) -> dict[str, float]:
    """Return the requests, and how many failed at first and for good."""
    settle(kind)
    import ray
    from ray import serve

    from app.scale.ray import ModelOptions, Options, build

    with tempfile.TemporaryDirectory() as folder:
        store = Path(shutil.copytree(STORE, Path(folder) / "store"))

        def application(revision: int) -> Any:
            own = {"digits": ModelOptions(replicas=2, cpus=0.5, revision=str(revision))}
            return build(Options(store=str(store), replicas=1, cpus=0.5, models=own))

        port = free_port()
        ray.init(num_cpus=2, object_store_memory=MEMORY, include_dashboard=False, log_to_driver=False)
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(application(0), name="rolling")
        try:
            with clients(f"http://127.0.0.1:{port}", "/models/digits/infer") as found:
                for revision in range(1, UPDATES + 1):
                    serve.run(application(revision), name="rolling")
                for _ in range(UPDATES):
                    path = store / "digits" / "1" / "model.pnnx.param"
                    shutil.copy(path, path.with_name("next"))
                    path.with_name("next").replace(path)
                    time.sleep(3 * PAUSE_S)
            return {"updates": 2 * UPDATES, "requests": len(found.at), "failed": found.retried, "lost": found.lost}
        finally:
            serve.shutdown()
            ray.shutdown()
