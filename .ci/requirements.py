"""Print the requirements of an extra; without one the versions of all packages that the installed server needs.

``make test`` installs the extra with those versions as constraints, so a server that runs from the same virtual
environment keeps its packages.
"""

from __future__ import annotations

import sys
from importlib.metadata import requires, version

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

PROJECT = "pnnx-serve"


def needed(package: str, extra: str = "") -> list[Requirement]:
    """Return what an installed package needs on this system: of an extra, or without any."""
    found = [Requirement(text) for text in requires(package) or ()]
    return [each for each in found if _is_needed(each, extra)]


def _is_needed(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    if marker is None or not marker.evaluate({"extra": extra}):
        return marker is None and not extra
    return not (extra and marker.evaluate({"extra": ""}))  # else it is needed without the extra as well


def of_server() -> set[str]:
    """Return the names of all packages that the server needs, directly or through other packages."""
    names: set[str] = set()
    waiting = needed(PROJECT)
    while waiting:
        name = canonicalize_name(waiting.pop().name)
        if name not in names:
            names.add(name)
            waiting += needed(name)
    return names


def main(extra: str = "") -> None:
    """Write the lines that ``pip install --requirement`` or ``--constraint`` reads."""
    if not extra:
        print(*(f"{name}=={version(name)}" for name in sorted(of_server())), sep="\n")
        return
    for requirement in needed(PROJECT, extra):
        requirement.marker = None
        print(requirement)


if __name__ == "__main__":
    main(*sys.argv[1:])
