"""``pnnx-serve deploy ray``: serve the store with Ray Serve, on this machine or a cluster."""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from app.location import Remote
from app.scale.ray.application import OF_RAY
from app.scale.ray.cluster import Cluster
from app.scale.ray.options import Options
from app.settings import Settings


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Deploy and print the URL; on a local cluster, wait for SIGTERM or SIGINT."""
    requested = {name: getattr(args, name) for name in ("replicas", "cpus", "models_per_replica")}
    scaling = {name: value for name, value in requested.items() if value is not None}
    options = Options(store=_address(settings), settings=_changed_settings(settings), **scaling)
    with Cluster(args.address, settings.host, settings.port) as cluster:
        url = cluster.deploy(options, args.name, settings.load_timeout_s)
        sys.stdout.write(f"pnnx-serve: {options.store} is served by Ray at {url}\n")
        sys.stdout.flush()
        if (problem := cluster.problem(args.name)) is not None:
            sys.stderr.write(f"pnnx-serve: deployed, but not ready: {problem}\n")
        if args.address is None:
            _wait()
    return 0


def _address(settings: Settings) -> str:
    """Return the absolute address of the store, valid in every replica."""
    store = settings.store
    if not isinstance(store, Remote):
        return str(store.absolute())
    return store.url if store.digest is None else f"{store.url}#sha256={store.digest}"


def _changed_settings(settings: Settings) -> dict[str, object]:
    """Return the settings that differ from the defaults; replicas do not see this command line or environment."""
    usual = type(settings)()
    names = [name for name in type(settings).model_fields if name not in OF_RAY]
    return {name: value for name in names if (value := getattr(settings, name)) != getattr(usual, name)}


def _wait() -> None:
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    stopping.wait()
