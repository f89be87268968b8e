"""Ray is told which models a replica holds: what names one in the header serve_multiplexed_model_id is sent there."""

from __future__ import annotations

import logging
from collections.abc import Iterable

log = logging.getLogger(__name__)


def announce(names: Iterable[str]) -> None:
    """Tell Ray. It goes on without, and then asks any replica."""
    try:
        from ray.serve._private.common import RequestRoutingInfo
        from ray.serve.context import _get_global_client, _get_internal_replica_context

        context = _get_internal_replica_context()
        info = RequestRoutingInfo(replica_id=context.replica_id, multiplexed_model_ids=list(names))
        _get_global_client().record_request_routing_info(info)
    except Exception as exc:  # these are Ray's own names, which another version may not have
        log.debug("Ray is not told which models this replica holds (%s)", type(exc).__name__)
