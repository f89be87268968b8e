"""Tests that pages work without internet access and load nothing from other hosts."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path
from urllib.parse import urljoin

import pytest

from app.http.routes import pages
from tests.app.client import Client

STATIC = Path(pages.__file__).parents[2] / "static"
PAGES = ("/", "/docs")


def parts(zoo: Client, page: str) -> set[str]:
    """Return the files that a page loads."""
    text = zoo.get(page).text
    found = re.findall(r"<(?:script|img|iframe)[^>]* src=\"([^\"]+)\"|<link[^>]* href=\"([^\"]+)\"", text)
    return {urljoin(page, one or other) for one, other in found if not (one or other).startswith("data:")}


@pytest.mark.parametrize("page", PAGES)
def test_no_page_names_another_host(zoo: Client, page: str) -> None:
    ours = [zoo.get(page).text, (STATIC / "docs.js").read_text()]
    ours += [path.read_text() for kind in ("js", "css") for path in (STATIC / "console" / kind).rglob(f"*.{kind}")]
    ours = [text.replace("http://www.w3.org/2000/svg", "") for text in ours]  # a name, not an address
    assert [text for text in ours if re.search(r"//[a-z0-9-]+\.", text) or "http:" in text or "https:" in text] == []
    for part in parts(zoo, page):
        assert part.startswith("/") and zoo.get(part).status_code == 200


def test_docs_is_made_of_what_the_server_has(zoo: Client) -> None:
    swagger = {"/docs/swagger-ui.css", "/docs/swagger-ui-bundle.js", "/docs/start.js", "/docs/docs.css"}
    assert {part for part in parts(zoo, "/docs") if part.startswith("/docs")} == swagger
    assert {part for part in parts(zoo, "/docs") if part.startswith("/console")} == {
        "/console/icon.svg", "/console/css/base.css", "/console/js/theme.js"
    }  # fmt: skip
    assert "SwaggerUIBundle" in zoo.get("/docs/swagger-ui-bundle.js").text
    assert '"openapi.json"' in zoo.get("/docs/start.js").text and "validatorUrl: null" in zoo.get("/docs/start.js").text


@pytest.mark.parametrize("page", PAGES)
def test_pages_may_load_nothing_from_elsewhere_and_run_no_script_that_stands_in_them(zoo: Client, page: str) -> None:
    answer = zoo.get(page)
    policy = dict(each.split(" ", 1) for each in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'" and "unsafe" not in str(policy) and "http" not in str(policy)
    assert policy.get("script-src", "'none'") in ("'none'", "'self'")
    assert not re.search(r"<script(?![^>]* src=)|\son\w+=|javascript:", answer.text)
    assert "<style" not in answer.text and " style=" not in answer.text and policy["style-src"] == "'self'"


def test_the_console_is_small_files_and_little_to_send(zoo: Client) -> None:
    files = [path for path in (STATIC / "console").rglob("*") if path.is_file()]
    ours = [path for path in files if path.parent.name != "vendor"]
    assert {path.name: lines for path in ours if (lines := len(path.read_text().splitlines())) > 300} == {}
    sent = [path for path in files if path.suffix in (".js", ".css", ".woff2", ".svg", ".html")]
    assert sum(min(path.stat().st_size, len(gzip.compress(path.read_bytes()))) for path in sent) < 600_000


@pytest.mark.parametrize("folder", [STATIC / "console" / "vendor", Path(__file__).parents[1] / "console" / "axe"])
def test_what_the_console_uses_of_others_is_what_is_pinned(folder: Path) -> None:
    rows = dict(reversed(line.split()) for line in (folder / "checksums.txt").read_text().splitlines())
    files = [path for path in folder.iterdir() if path.name != "checksums.txt"]
    assert rows == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert any("LICENSE" in path.name for path in files)


def test_parts_are_sent_packed_where_they_may_be_and_once(zoo: Client) -> None:
    for name in ("swagger-ui-bundle.js", "swagger-ui.css", "start.js"):
        packed = zoo.get(f"/docs/{name}", headers={"accept-encoding": "gzip"})
        plain = zoo.get(f"/docs/{name}", headers={"accept-encoding": "identity"})
        assert packed.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
        assert packed.content == plain.content and packed.headers["content-type"] == plain.headers["content-type"]
        again = zoo.get(f"/docs/{name}", headers={"if-none-match": plain.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_swagger_ui_is_the_release_that_is_pinned() -> None:
    folder = STATIC / "swagger-ui"
    rows = dict(reversed(line.split()) for line in (folder / "checksums.txt").read_text().splitlines())
    packed = {path.stem: gzip.decompress(path.read_bytes()) for path in folder.glob("*.gz")}
    assert rows == {name: hashlib.sha256(data).hexdigest() for name, data in packed.items()}
    assert "Apache License" in (folder / "LICENSE").read_text()
    assert all((folder / name).read_text() for name in ("NOTICE", "swagger-ui-bundle.js.LICENSE.txt"))


@pytest.mark.parametrize(
    "path",
    [
        "/redoc",
        "/docs/oauth2-redirect",
        "/docs/",
        "/docs/../docs.html",
        "/console/",
        "/console/index.html",
        "/console/js",
    ],
)
def test_there_are_no_other_pages(zoo: Client, path: str) -> None:
    assert zoo.get(path).status_code == 404
