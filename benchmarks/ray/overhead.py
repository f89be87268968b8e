"""Time of a request by leg: in the proxy, in serialisation, in the replica, and between them.

Proxy and replica stamp requests (stamps.py) with a clock that all processes of a machine share, so the legs add up to
the client's wait. Processor time is that of the whole process.
"""

from __future__ import annotations

import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import httpx

from benchmarks.machine import describe
from benchmarks.raw import Result
from benchmarks.ray.stamps import Stamps, cpu_s, named
from benchmarks.ray.world import HEADERS, MEMORY, STORE, free_port, settle, tensor
from benchmarks.report import table

REQUESTS: Final = 200
WARM: Final = 20
ITEMS: Final = 600
# In order. HAProxy leaves no stamps: what is before and behind the replica has its part, and the client's, in it.
LEGS: Final = ("in the proxy", "to the replica", "in the replica", "model", "back to the proxy", "back in the proxy")


def run(kind: str) -> dict[str, float]:
    """Return milliseconds a request behind Ray."""
    settle(kind, {"RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "benchmarks.ray.stamps.of_the_proxy"})
    import ray
    from ray import serve

    port = free_port()
    before = named("haproxy")
    ray.init(num_cpus=2, object_store_memory=MEMORY, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(_application(), name="overhead")
    try:
        found = measured(f"http://127.0.0.1:{port}", lambda: named("haproxy") - before)
        return found | {
            "serialised": _serialised(tensor(ITEMS), ray),
            "serialised, answer": _serialised(bytes(24_000), ray),
        }
    finally:
        serve.shutdown()
        ray.shutdown()


def _application() -> Any:
    """Return the application of ``build`` with time stamps."""
    from ray import serve

    from app.scale.ray import Options
    from app.scale.ray.application import make_settings, placement
    from app.scale.ray.deployments import Store

    class Stamped(Store):
        def __serve_build_asgi_app__(self) -> Any:
            return Stamps(self.front, "replica")

    options = Options(store=str(STORE), replicas=1)
    made = serve.deployment(serve.ingress()(Stamped), name="overhead", **placement(options))
    return made.bind(make_settings(options), None, {}, None, "")


def alone() -> dict[str, float]:
    """Return the same behind a server alone."""
    port = free_port()
    command = [sys.executable, "-m", "app", "serve", "--store", str(STORE), "--port", str(port), "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            return measured(f"http://127.0.0.1:{port}", set, process.pid)
        finally:
            process.terminate()


def measured(url: str, proxies: Callable[[], set[int]], server: int | None = None) -> dict[str, float]:
    """Return the median of each leg, and processor time a request.

    proxies: processes in front that leave no stamps.
    server: the process, where it leaves none.
    """
    body, rows, found = tensor(ITEMS), [], {}
    with httpx.Client(base_url=url, timeout=60) as client:
        while not _is_ready(client):
            time.sleep(0.1)
        fronts, replicas, begun = set[int](), {server} if server else set[int](), (0.0, 0.0)
        for number in range(REQUESTS + WARM):
            if number == WARM:
                fronts |= proxies()
                begun = cpu_s(fronts), cpu_s(replicas)
            start = time.perf_counter()
            answer = client.post("/models/digits/infer", content=body, headers=HEADERS)
            end = time.perf_counter()
            answer.raise_for_status()
            row, pids = _legs(answer, start, end)
            if number >= WARM:
                rows.append(row)
            else:
                fronts, replicas = fronts | pids.get("proxy", set()), replicas | pids.get("replica", set())
        found["CPU, proxy"] = (cpu_s(fronts) - begun[0]) * 1e3 / REQUESTS
        found["CPU, replica"] = (cpu_s(replicas) - begun[1]) * 1e3 / REQUESTS
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]} | found


def _legs(answer: httpx.Response, start: float, end: float) -> tuple[dict[str, float], dict[str, set[int]]]:
    """Return the milliseconds of each leg of one request, and the processes on its way."""
    model = sum(float(part.partition("dur=")[2]) for part in answer.headers["server-timing"].split(","))
    stamps = {name: answer.headers.get(f"x-stamps-{name}", "").split() for name in ("proxy", "replica")}
    if stamps["proxy"][:1] == stamps["replica"][:1]:  # Ray puts it around replicas that take HTTP by themselves
        stamps["proxy"] = []
    row = {"total": (end - start) * 1e3, "model": model, "outside the model": (end - start) * 1e3 - model}
    times = [start]
    for name in ("proxy", "replica"):
        if stamps[name]:
            times.append(float(stamps[name][1]))
    for name in ("replica", "proxy"):
        if stamps[name]:
            times.append(float(stamps[name][2]))
    steps = [(later - earlier) * 1e3 for earlier, later in zip(times, [*times[1:], end], strict=True)]
    if len(steps) == 5:  # both have stamped it
        row |= dict(zip(LEGS, (*steps[:2], steps[2] - model, model, *steps[3:]), strict=True))
    elif len(steps) == 3:  # the replica alone
        row |= {"to the replica": steps[0], "in the replica": steps[1] - model, "back to the proxy": steps[2]}
    return row, {name: {int(found[0])} for name, found in stamps.items() if found}


def compare(asked: Callable[[str], dict[str, float]], save: str | None) -> int:
    """Print all three with what Ray adds to a server alone, and save them if asked."""
    found = {"server alone": alone(), "Ray's proxy": asked("plain"), "HAProxy": asked("haproxy")}
    for row in found.values():
        row["more than a server alone"] = row["outside the model"] - found["server alone"]["outside the model"]
    names = ("total", *LEGS, "outside the model", "more than a server alone", "CPU, proxy", "CPU, replica")
    cells = [[name, *(f"{row[name]:.2f}" if name in row else "-" for row in found.values())] for name in names]
    plain = found["Ray's proxy"]
    body = (
        f"{table(['ms', *found], cells)}\n\n"
        "Ray's proxy serialises messages (pickle, shared memory, unpickle), HAProxy does not: "
        f"the request {plain['serialised']:.2f} ms, the answer {plain['serialised, answer']:.2f} ms."
    )
    how = f"{len(tensor(ITEMS)):,} bytes to the model digits, median of {REQUESTS} requests"
    records = [{"in front": name, **row} for name, row in found.items()]
    result = Result(kind="ray", machine=describe(()), how=how, body=body, records=records)
    result.publish(save)
    return 0


def _serialised(body: bytes, ray: Any) -> float:
    """Return the minimum time of a body through pickle and Ray's shared memory, in a list of 64 KiB messages."""
    parts = [
        {"type": "http.request", "body": body[at : at + 65536], "more_body": True} for at in range(0, len(body), 65536)
    ]
    times = []
    for _ in range(100):
        start = time.perf_counter()
        pickle.loads(ray.get(ray.put(pickle.dumps(parts))))
        times.append((time.perf_counter() - start) * 1e3)
    return min(times)


def _is_ready(client: httpx.Client) -> bool:
    with suppress(httpx.HTTPError):
        return client.get("/health/ready").status_code == 200
    return False
