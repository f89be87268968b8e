"""Hooks of mkdocs: the pages of the site that lie outside docs/, the links between pages, and the OpenAPI document."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import os
import posixpath
import re
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Final

import orjson
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from app.cli import main
from app.cli.verbs import VERBS
from app.http.main import create_app
from app.settings import Settings

ROOT: Final = Path(__file__).parents[1]
# Pages outside docs/ that the navigation names. Every other file that a page links to is put below `files/`.
PAGES: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "benchmarks/README.md": "benchmarks.md",
    "clients/python/README.md": "python-client.md",
    "deploy/README.md": "deploy.md",
}
_DECISIONS: Final = "Design decisions"
_BLOCK: Final = re.compile(r"^```.*?^```$", re.M | re.S)
_REFERENCE: Final = re.compile(r"<!-- reference: (\w+) -->")
_WHOLE_LINK: Final = re.compile(r"\[([^\[\]]+)\]\((?!\w+:|#)([^)#\s]+)\)")
_LINK: Final = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")


def on_config(config: MkDocsConfig) -> None:
    """List the decision records in the navigation."""
    sys.path.insert(0, str(ROOT / "clients" / "python"))  # pnnx_client need not be installed
    for section in config.nav or ():
        for entries in section.values():
            for entry in entries if isinstance(entries, list) else ():
                if _DECISIONS in entry:
                    entry[_DECISIONS] = _decisions()


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add what lies outside docs/: pages, files they link to, Swagger UI and the document it shows."""
    waiting = [*PAGES, *(f"docs/{each.src_uri}" for each in files.documentation_pages())]
    seen = set(waiting)
    for path in waiting:
        if not path.startswith("docs/"):
            files.append(File.generated(config, uri_of(path), abs_src_path=str(ROOT / path)))
        found = set(_targets(path)) - seen
        seen |= found
        waiting += found
    for name in ("swagger-ui.css", "swagger-ui-bundle.js"):
        packed = (ROOT / "app/static/swagger-ui" / f"{name}.gz").read_bytes()
        files.append(File.generated(config, f"swagger-ui/{name}", content=gzip.decompress(packed)))
    files.append(File.generated(config, "openapi.json", content=_openapi()))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links between files of the repository links between pages of the site."""
    path = next((each for each, uri in PAGES.items() if uri == page.file.src_uri), None)
    path = path or page.file.src_uri.removeprefix("files/") if page.file.generated_by else f"docs/{page.file.src_uri}"
    if path.startswith("benchmarks/results/"):
        page.meta["search"] = {"exclude": True}
    markdown = _REFERENCE.sub(lambda match: _reference(match[1]), markdown).replace("<!-- help -->", _help())
    folder = posixpath.dirname(page.file.src_uri)

    def rewritten(match: re.Match[str]) -> str:
        target = _resolved(path, match[1])
        return f"]({posixpath.relpath(uri_of(target), folder)}" if (ROOT / target).is_file() else match[0]

    def without_folder(match: re.Match[str]) -> str:
        return match[1] if (ROOT / _resolved(path, match[2])).is_dir() else match[0]

    return _LINK.sub(rewritten, _WHOLE_LINK.sub(without_folder, markdown))


def uri_of(path: str) -> str:
    """Return where a file of the repository lies in the site's sources."""
    return path.removeprefix("docs/") if path.startswith("docs/") else PAGES.get(path, f"files/{path}")


def _reference(name: str) -> str:
    """Return the sections of a package's public names: functions, classes and errors."""
    package = import_module(name)
    sections: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors": []}
    for public in package.__all__:
        found = getattr(package, public)
        if isinstance(found, type):
            sections["Errors" if issubclass(found, Exception) else "Classes"].append(public)
        elif isinstance(found, FunctionType):
            sections["Functions"].append(public)
    lines = []
    for title, names in sections.items():
        lines += [f"### {title}" if names else "", *(f"::: {name}.{public}" for public in sorted(names))]
    return "\n\n".join(lines)


def _decisions() -> list[str]:
    """Return the pages of the records, their list first."""
    pages = sorted(ROOT.glob("docs/decisions/*.md"), key=lambda path: (path.name != "README.md", path.name))
    return [page.relative_to(ROOT / "docs").as_posix() for page in pages]


@functools.cache
def _help() -> str:
    """Return the help of every verb of `pnnx-serve`."""
    os.environ["COLUMNS"] = "100"
    sections = []
    for verb in VERBS:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            main([verb, "--help"])
        sections.append(f"## {verb}\n\n```text\n{printed.getvalue()}```")
    return "\n\n".join(sections)


def _targets(path: str) -> Iterator[str]:
    """Yield the files outside docs/ that a page links to."""
    if path.endswith(".md"):
        for link in _LINK.findall(_BLOCK.sub("", (ROOT / path).read_text(encoding="utf-8"))):
            target = _resolved(path, link)
            if not target.startswith("docs/") and (ROOT / target).is_file():
                yield target


def _resolved(path: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def _openapi() -> bytes:
    """Return the OpenAPI document of a server with an empty store."""
    with tempfile.TemporaryDirectory() as store:
        return orjson.dumps(create_app(Settings(store=Path(store))).openapi())
