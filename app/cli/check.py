"""``pnnx-serve check``: everything that keeps a model from being served, at once."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from app.cli.arguments.options import MODEL_HELP, add_setting, read_settings
from app.progress import progress

SUMMARY: Final = "say whether models can be served, and if not, every reason"
EXAMPLES: Final = """  pnnx-serve check digits
  pnnx-serve check exported/*.pnnx.param && echo all of them
  pnnx-serve check --strict digits
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Which models."""
    parser.add_argument("model", nargs="+", metavar="MODEL", help=MODEL_HELP)
    for name in ("store", "plugins", "strict"):
        add_setting(parser, name)


def execute(args: argparse.Namespace) -> int:
    """1 when a model cannot be served."""
    settings = read_settings(args)
    from app.cli.wording.inspection import inspect  # imports numpy

    failed = False
    for name in args.model:
        with progress(f"checking {name}"):
            findings = inspect(name, settings)
        failed |= any(finding.is_error for finding in findings)
        sys.stdout.write("".join(f"{finding}\n" for finding in findings))
    return int(failed)
