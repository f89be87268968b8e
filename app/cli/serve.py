"""``pnnx-serve serve``: the server. Every setting is a flag."""

from __future__ import annotations

import argparse
from typing import Final

from app.cli.arguments.options import add_setting, read_settings
from app.settings import Settings

SUMMARY: Final = "serve the models of a store over HTTP"
EXAMPLES: Final = """  pnnx-serve serve --store model_store
  pnnx-serve serve --store /models --host 0.0.0.0 --port 80 --threads 4
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """A flag for every setting."""
    for name in Settings.model_fields:
        add_setting(parser, name)


def execute(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
    settings = read_settings(args, concurrent=True)
    from app.process.server import serve  # imports numpy

    return serve(settings)
