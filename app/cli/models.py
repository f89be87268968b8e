"""``pnnx-serve models``: list the models of a store without loading them."""

from __future__ import annotations

import argparse
import sys

from app.cli.output import write_json
from app.models.folder.repository import ModelFiles, scan
from app.remote import fetched
from app.render.table import aligned
from app.settings import Settings


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Print a row for each model; a model that cannot be read has its reason."""
    found = scan(fetched(settings), settings.model_name)
    if args.json:
        write_json([_plain(files) for files in found])
        return 0
    rows = [("MODEL", "VERSIONS", "TAGS", "TASK", ""), *map(_row, found)]
    lines = aligned(rows) if found else [f"no models in '{settings.store}'"]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _plain(files: ModelFiles) -> dict[str, object]:
    versions = [version.number for version in files.versions]
    task = None if files.problem is not None else files.config.task
    tags = {} if files.problem is not None else dict(files.config.tags)
    return {"model": files.name, "versions": versions, "tags": tags, "task": task, "problem": files.problem}


def _row(files: ModelFiles) -> tuple[str, ...]:
    if files.problem is not None:
        return files.name, "-", "-", "-", f"failed: {files.problem}"
    versions = ", ".join(str(version.number) for version in files.versions)
    missing = [str(version.number) for version in files.versions if not version.param.is_file()]
    tags = ", ".join(f"{tag}={number}" for tag, number in files.config.tags.items()) or "-"
    return files.name, versions, tags, files.config.task, f"no model in {', '.join(missing)}" if missing else ""
