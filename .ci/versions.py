"""Check that both distributions and the changelog have one version, that of a tag if one is given; print it.

`python .ci/versions.py [TAG]`
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main(tag: str = "") -> int:
    """Print the version, or what differs."""
    found = {}
    for name in ("pyproject.toml", "clients/python/pyproject.toml"):
        found[name] = tomllib.loads((ROOT / name).read_text(encoding="utf-8"))["project"]["version"]
    released = re.search(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    found["CHANGELOG.md"] = released[1] if released else found["pyproject.toml"]
    if tag:
        found["tag"] = tag.removeprefix("v")
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{name} has {version}" for name, version in found.items())
        print(f"versions differ: {listed}", file=sys.stderr)
        return 1
    print(found["pyproject.toml"])
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
