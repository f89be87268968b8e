"""Ray cluster to deploy to: a running one, or one on this machine."""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from types import TracebackType
from typing import Any, Final, Self

from app.errors import ConfigError
from app.messages import safe_text
from app.scale.ray.application import build, check_ray
from app.scale.ray.options import ModelOptions, Options

_LOOK_S: Final = 0.25
_REASON: Final = 600
_KNOCK_S: Final = 10.0
_ANSWER_S: Final = 30.0
# Line of a traceback with the cause; Ray returns the whole traceback within its own.
_RAISED: Final = re.compile(r"^\s*(?:\w+\.)*\w*(?:Error|Exception): (.+)$", re.MULTILINE)


class ClusterError(ConfigError):
    """Cluster that is unreachable, full, or unable to start the application."""


def _absent(address: str | None) -> ClusterError:
    return ClusterError(
        f"no Ray cluster answers at '{address}': check it with 'ray status --address {address}', "
        "or omit --address to start one here"
    )


def _knock(address: str) -> None:
    """Raise if nothing listens at the address; Ray itself would retry for minutes.

    Raises:
        ClusterError: nothing does.
    """
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if not port.isdecimal():  # "auto", or invalid, which Ray reports
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK_S).close()
    except (OSError, OverflowError):
        raise _absent(address) from None


class Cluster:
    """Connection to Ray, as a context manager.

    Args:
        address: address of a cluster, or ``auto`` for the one of this machine; None starts a local cluster that ends
            with
            the context.
        host, port: address of the HTTP proxy.

    Raises:
        SettingsError: Ray is missing or too old.
        ClusterError: the cluster is unreachable, or has another version.
    """

    def __init__(self, address: str | None, host: str, port: int) -> None:
        found = check_ray()
        # Starting a server must not send usage statistics.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        if address is not None:
            _knock(address)
        more: dict[str, Any] = {"include_dashboard": False} if address is None else {}
        try:
            ray.init(address=address or "local", logging_level=logging.WARNING, log_to_driver=address is None, **more)
        except ConnectionError:
            raise _absent(address) from None
        except RuntimeError as exc:
            if "ersion" not in str(exc):
                raise ClusterError(f"Ray does not start: {safe_text(str(exc), _REASON)}") from None
            raise ClusterError(
                f"the cluster at '{address}' has another version of Ray or of Python than this one (Ray {found}): "
                f"install the same on both. {safe_text(str(exc), _REASON)}"
            ) from None
        self._ray = ray
        self._is_ours = address is None
        self._http = {"host": host, "port": port}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_ours:
            from ray import serve

            serve.shutdown()
        self._ray.shutdown()

    def deploy(self, options: Options, name: str, limit_s: float) -> str:
        """Deploy the application and return the address of its proxy.

        Raises:
            ClusterError: the cluster has no room for it, or it cannot start.
        """
        from ray import serve

        application = build(options)
        self._check_room([options, *options.models.values()])
        serve.start(http_options=self._http)
        serve.run_many([serve.RunTarget(application, name=name)], wait_for_applications_running=False)
        self._wait_for(name, time.monotonic() + limit_s)
        host = "127.0.0.1" if self._http["host"] == "0.0.0.0" else self._http["host"]
        return f"http://{host}:{self._http['port']}"

    def problem(self, name: str) -> str | None:
        """Return why a running application is not ready, or None."""
        from ray import serve

        for deployment in serve.status().applications[name].deployments:
            handle = serve.get_deployment_handle(deployment, name)
            found: str | None = handle.problem.remote().result(timeout_s=_ANSWER_S)
            if found is not None:
                return found
        return None

    def _check_room(self, shares: list[ModelOptions]) -> None:
        """Raise if a replica needs more cores than any node has; Ray would wait forever."""
        most = max((node["Resources"].get("CPU", 0.0) for node in self._ray.nodes() if node["Alive"]), default=0.0)
        wanted = max(share.cpus for share in shares)
        if wanted > most:
            raise ClusterError(
                f"a replica: found {wanted:g} cores, expected at most {most:g} as the largest node has: "
                "use fewer (--cpus), or a larger node"
            )

    def _wait_for(self, name: str, end: float) -> None:
        from ray import serve

        while True:
            found = serve.status().applications.get(name)
            status = "" if found is None else str(found.status.value)
            if status == "RUNNING":
                return
            if status in ("DEPLOY_FAILED", "UNHEALTHY"):
                raise ClusterError(f"the replicas do not start: {_reasons(found)}")
            if time.monotonic() > end:
                raise ClusterError(self._late(found))
            time.sleep(_LOOK_S)

    def _late(self, found: Any) -> str:
        free, total = self._ray.available_resources().get("CPU", 0.0), self._ray.cluster_resources().get("CPU", 0.0)
        states = [] if found is None else [each.replica_states for each in found.deployments.values()]
        running, all_of_them = sum(each.get("RUNNING", 0) for each in states), sum(map(sum, map(dict.values, states)))
        text = (
            f"{running} of {all_of_them} replicas run; {free:g} of the cluster's {total:g} cores are free. "
            "If it is full: fewer replicas, fewer --cpus, or another node"
        )
        if not self._is_ours:
            text += "; what was asked for stays, and starts when there is room ('serve status' shows it)"
        return " ".join(filter(None, (f"{text}.", _reasons(found))))


def _reasons(found: Any) -> str:
    """Return Ray's messages on deployments that do not run, without tracebacks."""
    own = [] if found is None else [each.message for each in found.deployments.values() if each.message]
    texts = own or ([found.message] if found is not None and found.message else [])
    lasts = [(_RAISED.findall(text) or [text])[-1] for text in texts]
    return safe_text("; ".join(dict.fromkeys(lasts)), _REASON)
