"""Write the table of metrics into docs/operating.md.

    python docs/generate_metrics.py

A test fails when the page is out of date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from app.metrics.collector import FAMILIES

PAGE: Final = Path(__file__).with_name("operating.md")
_TABLE: Final = re.compile(r"(?<=\| metric \| kind \| labels \| meaning \|\n\|---\|---\|---\|---\|\n)(?:\|.*\n)*")


def with_table(page: str) -> str:
    """Return the page with the current table of metrics."""
    rows = [
        f"| `{family.name}` | {family.kind} | {', '.join(f'`{label}`' for label in family.labels)} | {family.text} |\n"
        for family in FAMILIES.values()
    ]
    return _TABLE.sub(lambda _: "".join(rows), page, count=1)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
