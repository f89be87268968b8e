"""Entry point of the command ``pnnx-serve``: reports a foreign package that hides one of ours."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path


def main() -> int:
    """Run the command line, unless another package named ``app`` or ``engine`` comes first."""
    own = Path(__file__).resolve().parent
    for name in ("app", "engine"):
        spec = find_spec(name)
        folders = [] if spec is None else [Path(each).resolve() for each in spec.submodule_search_locations or ()]
        if own / name not in folders:
            found = folders[0] if folders else spec and spec.origin
            print(
                f"pnnx-serve: error: package '{name}': found {found}, expected {own / name}. Remove its folder from"
                " PYTHONPATH, or install pnnx-serve into an environment of its own.",
                file=sys.stderr,
            )
            return 1
    from app.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
