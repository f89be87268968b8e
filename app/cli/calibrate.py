"""``pnnx-serve calibrate``: measure this machine and store the result in the cache folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any, Final

import engine
from app.cli.output import write_json
from app.models.sessions import cache_of
from app.progress import progress
from app.render.table import aligned
from app.settings import Settings

_LEVELS: Final = (
    ("second-level cache", "second_bytes", "second_level_bytes_per_s"),
    ("last-level cache", "last_bytes", "last_level_bytes_per_s"),
    ("memory", None, "memory_bytes_per_s"),
    ("memory, all cores at once", None, "memory_bytes_per_s_of_all_cores"),
)


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Measure, store and print."""
    with progress("measuring this machine"):
        described = engine.describe_host(cache_of(settings), again=True)
    if args.json:
        write_json(described)
    else:
        sys.stdout.write(host_text(described))
    return 0


def host_text(host: Mapping[str, Any]) -> str:
    """Format the result of ``engine.describe_host``."""
    measured, caches, costs = host["measured"], host["caches"], host["costs"]
    rows = [["read from", "size", "GB/s per core"]]
    for title, size, rate in _LEVELS:
        rows.append([title, _size(caches[size]) if size else "", f"{measured[rate] / 1e9:.0f}"])
    lines = [
        f"{host['cpu']}: {host['level']}, {host['lanes']} lanes, {host['registers']} registers",
        f"multiply-add peak     {measured['flops_per_s'] / 1e9:.0f} GFLOP/s per core, "
        f"{costs['products_in_flight']:g} in flight",
        f"broadcasts            {costs['repeats_a_product']:.2g} in the time of a multiply-add",
        f"prefetch distance     {_size(costs['ahead_bytes'])} for weights",
        f"streamed weights      {_size(costs['strand_ahead_bytes'])} ahead, in {costs['strands']} interleaved streams"
        if costs["strands"] > 1
        else "streamed weights      one stream",
        "",
        *aligned(rows),
        "",
        "Kernels are now chosen by these measurements; models are compiled again at the next start.",
    ]
    return "\n".join(lines) + "\n"


def _size(count: int) -> str:
    if 0 < count < 1024:
        return f"{count} bytes"
    return f"{count >> 10:,} KiB" if count else "unknown"
