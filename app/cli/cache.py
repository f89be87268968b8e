"""``pnnx-serve cache``: list or clear the folder of compiled programs."""

from __future__ import annotations

import argparse
import re
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from app.cli.output import write_json
from app.location import stores_folder
from app.render.formatting import count_text, counted
from app.render.table import aligned
from app.settings import Settings

# A key in hexadecimal digits and an ending: measurements of the machine and stores have other names.
_ENTRY: Final = re.compile(r"[0-9a-f]{64}\.[\w.-]+")


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """List or remove the entries of the cache."""
    folder = stores_folder(None, settings.cache_dir).parent
    entries = sorted(_entries(folder), key=lambda each: -each[2])
    total = f"{counted(len(entries), 'file')}, {count_text(sum(size for _, size, _ in entries), 'B')} in {folder}"
    if args.action == "clear":
        for path, _, _ in entries:
            path.unlink(missing_ok=True)
    if args.json:
        rows = [{"file": path.name, "bytes": size, "last_used": used} for path, size, used in entries]
        write_json({"folder": str(folder), "cleared": args.action == "clear", "files": rows})
    elif args.action == "clear":
        sys.stdout.write(f"removed {total}\n")
    else:
        rows_text = [
            (path.name[:12], path.name[65:].partition(".")[0], count_text(size, "B"), _age(used))
            for path, size, used in entries
        ]
        lines = [*aligned([("FILE", "KIND", "SIZE", "LAST USED"), *rows_text], ("SIZE",)), ""] if entries else []
        sys.stdout.write("\n".join([*lines, total, ""]))
    return 0


def _entries(folder: Path) -> Iterator[tuple[Path, int, float]]:
    """Yield path, size and time of last use of each entry; links are not followed."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        try:
            found = path.lstat()
        except FileNotFoundError:  # another process has removed it
            continue
        if _ENTRY.fullmatch(path.name) and stat.S_ISREG(found.st_mode):
            yield path, found.st_size, found.st_mtime


def _age(used: float) -> str:
    hours = (time.time() - used) / 3600
    if hours < 1:
        return f"{max(0.0, hours * 60):.0f} min ago"
    return f"{hours:.0f} h ago" if hours < 48 else f"{hours / 24:.0f} days ago"
