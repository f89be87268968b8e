"""``pnnx-serve check``: everything that keeps a model from being served, at once."""

from __future__ import annotations

import argparse
import sys

from app.cli.wording.inspection import inspect
from app.progress import progress
from app.settings import Settings


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """1 when a model cannot be served."""
    failed = False
    for name in args.model:
        with progress(f"checking {name}"):
            remarks = inspect(name, settings)
        failed |= any(remark.is_error for remark in remarks)
        sys.stdout.write("".join(f"{remark}\n" for remark in remarks))
    return int(failed)
