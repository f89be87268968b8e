"""Fetch Swagger UI's script and style for /docs into app/static/swagger-ui.

    python docs/fetch_swagger_ui.py

npm's client fetches the release, which must have the integrity hash below. The files are stored compressed, as they are
sent; a test compares their uncompressed bytes with checksums.txt. For another release, change version and integrity
(``npm view swagger-ui-dist@VERSION dist.integrity``), and check /docs.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

VERSION: Final = "5.35.0"
INTEGRITY: Final = "sha512-U06rpMtW9V3XPGOBeamTUSr0Z09jMX4IJuANpE/EZbAhw0G8CgwrzU4YmXkn/h0wCDNsXdGarTNNHC3sU8yVUQ=="
FOLDER: Final = Path(__file__).parents[1] / "app" / "static" / "swagger-ui"
PACKED: Final = ("swagger-ui-bundle.js", "swagger-ui.css")
PLAIN: Final = ("LICENSE", "NOTICE", "swagger-ui-bundle.js.LICENSE.txt")


def main() -> None:
    """Fetch, check and write the files."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", f"swagger-ui-dist@{VERSION}"], cwd=folder, check=True)
        (archive,) = Path(folder).glob("*.tgz")
        found = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if found != INTEGRITY:
            sys.exit(f"swagger-ui-dist {VERSION}: found {found}, expected {INTEGRITY}")
        with tarfile.open(archive) as files:
            contents = {name: _read(files, name) for name in (*PACKED, *PLAIN)}
    FOLDER.mkdir(exist_ok=True)
    for name in PLAIN:
        (FOLDER / name).write_bytes(contents[name])
    for name in PACKED:
        (FOLDER / f"{name}.gz").write_bytes(gzip.compress(contents[name], 9, mtime=0))
    sums = "".join(f"{hashlib.sha256(contents[name]).hexdigest()}  {name}\n" for name in PACKED)
    (FOLDER / "checksums.txt").write_text(sums, encoding="utf-8")


def _read(files: tarfile.TarFile, name: str) -> bytes:
    member = files.extractfile(f"package/{name}")
    if member is None:
        sys.exit(f"swagger-ui-dist {VERSION}: there is no file {name}")
    return member.read()


if __name__ == "__main__":
    main()
