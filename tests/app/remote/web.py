"""A web server on loopback that hands out files from memory, and fails when it is told to."""

from __future__ import annotations

import hashlib
import io
import ssl
import tarfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Web:
    """Files of a web server and the requests it received."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.all_redirected_to: str | None = None
        self.status = 200
        self.has_tags = True
        self.cuts = False
        self.asked: list[str] = []
        self.headers: list[str] = []
        self.url = ""

    def put(self, folder: Path, under: str = "models", *, sums: bool = True) -> None:
        """Hand out a folder, and with sums the list of its files."""
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        lines = [f"{hashlib.sha256(data).hexdigest()}  ./{name}\n" for name, data in sorted(files.items())]
        kept = {name: data for name, data in self.files.items() if not name.startswith(f"{under}/")}
        if sums:
            files["SHA256SUMS"] = "".join(lines).encode()
        self.files = kept | {f"{under}/{name}": data for name, data in files.items()}


@contextmanager
def web_server(context: ssl.SSLContext | None = None) -> Iterator[Web]:
    """A server that runs in a thread, over TLS with a context."""
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            web.asked.append(f"{self.command} {self.path}")
            web.headers.append(str(self.headers))
            location = web.redirects.get(self.path, web.all_redirected_to)
            if location is not None:
                self.send_response(302)
                self.send_header("content-length", "0")
                self.send_header("location", location)
                self.end_headers()
                return
            data = web.files.get(unquote(urlsplit(self.path).path).lstrip("/"))
            status = web.status if web.status != 200 or data is not None else 404
            body = data if data is not None and status == 200 else b"no"
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            if web.has_tags and status == 200:
                self.send_header("etag", f'"{hashlib.md5(body).hexdigest()}"')
            if web.cuts and len(body) > 100:
                self.send_header("connection", "close")
                self.close_connection = True
                body = body[: len(body) // 2]
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    web.url = f"{'http' if context is None else 'https'}://localhost:{server.server_port}"
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def tar_of(members: Iterable[tuple[tarfile.TarInfo | str, bytes]], mode: str = "w") -> bytes:
    """An archive of members, with their bytes."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:  # type: ignore[call-overload]
        for member, data in members:
            info = tarfile.TarInfo(member) if isinstance(member, str) else member
            if info.isreg() and isinstance(member, str):
                info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def tar_folder(folder: Path, mode: str = "w") -> bytes:
    """An archive of a folder's files."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return tar_of([(str(path.relative_to(folder)), path.read_bytes()) for path in paths], mode)
