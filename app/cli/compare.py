"""``pnnx-serve compare``: where a model's numbers leave a reference."""

from __future__ import annotations

import argparse
import sys

import engine
from app.cli.arguments import models, recording
from app.cli.arguments.options import UsageError
from app.cli.wording import divergence
from app.models.sessions import open_session
from app.progress import progress
from app.settings import Settings
from app.thread_limits import thread_budget


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """1 when the model diverges."""
    for name in ("rtol", "atol"):
        value = getattr(args, name)
        if value is not None and not value >= 0:
            raise UsageError(f"--{name}: found {value}, expected a number that is not negative")
    recorded = recording.read(args.reference)
    found = models.find(args.model, settings)
    with progress(f"loading {found.name}"):
        graph = models.load(models.newest(found), settings)
        session = open_session(graph, settings, thread_budget(settings.threads).threads)
    with progress(f"comparing {found.name}"):
        comparison = engine.compare(session, recorded, rtol=args.rtol, atol=args.atol)
    sys.stdout.write(divergence.report(comparison, f"{found.name} · {session.backend} back end"))
    return int(comparison.first is not None)
