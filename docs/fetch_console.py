"""Fetch the console's third-party files into app/static/console/vendor: Preact, htm, fonts, and axe-core for tests.

    python docs/fetch_console.py

npm's client fetches the releases, which must have the integrity hashes below. A test compares the files with
checksums.txt. For another release, change version and integrity (``npm view NAME@VERSION dist.integrity``), and run
tests/app/console.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "app" / "static" / "console" / "vendor"
AXE: Final = ROOT / "tests" / "app" / "console" / "axe"
# Modules import each other by path: there is no bundler, and the page has no inline script for an import map.
REWRITTEN: Final = ((b'from"preact"', b'from"./preact.js"'),)


@dataclass(frozen=True, slots=True)
class Package:
    """A release, and the targets of its files."""

    name: str
    version: str
    integrity: str
    files: dict[str, Path]


PACKAGES: Final = (
    Package(
        "preact",
        "11.2.0",
        "sha512-/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        {
            "dist/preact.mjs": FOLDER / "preact.js",
            "hooks/dist/hooks.mjs": FOLDER / "hooks.js",
            "LICENSE": FOLDER / "preact.LICENSE.txt",
        },
    ),
    Package(
        "htm",
        "3.1.1",
        "sha512-983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        {"dist/htm.mjs": FOLDER / "htm.js", "LICENSE": FOLDER / "htm.LICENSE.txt"},
    ),
    Package(
        "@fontsource-variable/inter",
        "5.3.0",
        "sha512-OupL48va4JNofb97w6NYeF9S7W/kHNKM0Er8Dem5nqi4jeOLrVJDoE8tZEpnMJmtkvNbB1EIPPwHcdkF6b1oUA==",
        {
            "files/inter-latin-wght-normal.woff2": FOLDER / "inter.woff2",
            "LICENSE": FOLDER / "inter.LICENSE.txt",
        },
    ),
    Package(
        "@fontsource-variable/jetbrains-mono",
        "5.3.0",
        "sha512-F32xpS2NsGYoQi2ADSkKTgpJj7ozajsGgDJ8woTnqjmIB+dxDIqImjl4pXZVEExu8UFZ2ndhmX18EBS/hdz3Lw==",
        {
            "files/jetbrains-mono-latin-wght-normal.woff2": FOLDER / "jetbrains-mono.woff2",
            "LICENSE": FOLDER / "jetbrains-mono.LICENSE.txt",
        },
    ),
    Package(
        "axe-core",
        "4.14.1",
        "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
        {"axe.min.js": AXE / "axe.min.js.gz", "LICENSE": AXE / "LICENSE.txt"},
    ),
)


def main() -> None:
    """Fetch, check and write the files."""
    for folder in (FOLDER, AXE):
        folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        for path, content in _fetch(package).items():
            path.write_bytes(gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content)
    for folder in (FOLDER, AXE):
        files = sorted(path for path in folder.iterdir() if path.name != "checksums.txt")
        sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
        (folder / "checksums.txt").write_text(sums, encoding="utf-8")


def _fetch(package: Package) -> dict[Path, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
        subprocess.run(command, cwd=folder, check=True)
        (archive,) = Path(folder).glob("*.tgz")
        found = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if found != package.integrity:
            sys.exit(f"{package.name} {package.version}: found {found}, expected {package.integrity}")
        with tarfile.open(archive) as files:
            return {path: _read(files, package, name) for name, path in package.files.items()}


def _read(files: tarfile.TarFile, package: Package, name: str) -> bytes:
    member = files.extractfile(f"package/{name}")
    if member is None:
        sys.exit(f"{package.name} {package.version}: there is no file {name}")
    content = member.read()
    if not name.endswith(".mjs"):
        return content
    for old, new in REWRITTEN:
        content = content.replace(old, new)
    # Source maps are not included.
    return b"".join(line for line in content.splitlines(True) if not line.startswith(b"//# sourceMappingURL"))


if __name__ == "__main__":
    main()
