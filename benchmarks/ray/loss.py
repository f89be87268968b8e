"""Two nodes, one of which is killed with all of its processes while clients ask."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.ray.world import MEMORY, STORE, clients, free_port, settle

BEFORE_S: Final = 5.0
AFTER_S: Final = 25.0


def run(kind: str) -> dict[str, float]:
    """Return the failures of clients that retry once, and the time until all was well."""
    settle(kind)
    import ray
    from ray import serve
    from ray.cluster_utils import Cluster

    from app.scale.ray import Options, build

    port = free_port()
    node = {"num_cpus": 1, "object_store_memory": MEMORY}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    second = cluster.add_node(**node)
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        # Two may be on the head: one that is lost must come back somewhere.
        serve.start(http_options={"host": "127.0.0.1", "port": port}, proxy_location="HeadOnly")
        serve.run(build(Options(store=str(STORE), replicas=2, cpus=0.6)), name="loss")
        with clients(f"http://127.0.0.1:{port}", "/models/digits/infer") as found:
            time.sleep(BEFORE_S)
            killed = time.monotonic()
            processes = kill(second)
            time.sleep(AFTER_S)
        return _told(found.at, killed) | {"processes killed": processes, "retried": found.retried, "lost": found.lost}
    finally:
        with suppress(Exception):
            serve.shutdown()
        ray.shutdown()
        cluster.shutdown()


def kill(node: Any) -> int:
    """End a node as a power cut would, without notice."""
    raylets = [info.process.pid for info in node.all_processes.get("raylet", [])]
    children = [
        int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal() and _parent(path) in raylets
    ]
    for pid in (*raylets, *children):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(raylets) + len(children)


def _parent(path: Path) -> int:
    with suppress(OSError, IndexError, ValueError):
        return int((path / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _told(at: list[tuple[float, bool]], killed: float) -> dict[str, float]:
    times = sorted(when for when, is_answered in at if is_answered and when > killed - 1)
    gaps = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    failed = [when for when, is_answered in at if not is_answered]
    after = max(failed, default=killed)
    again = next((when for when in times if when > after), float("inf"))
    return {"requests": len(at), "longest gap s": round(max(gaps), 3), "serving again s": round(again - killed, 3)}
