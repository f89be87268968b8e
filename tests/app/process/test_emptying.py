"""Tests of draining: between SIGTERM and closing the port every answer is the last of its connection."""

from __future__ import annotations

from pathlib import Path

from tests.app.sample_models import elementwise, write_model
from tests.app.sockets import answers, listening

BODY = b'{"inputs": [[1, 2]]}'
ASK = (
    b"POST /models/one/infer HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
    % (
        len(BODY),
        BODY,
    )
)


def test_kept_connections_are_given_up_with_an_answer_and_not_in_the_midst(tmp_path: Path) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))
    with listening(tmp_path, threads=1) as front, front.connect() as connection:
        assert front.server.connections is not None
        for _ in range(3):
            connection.sendall(ASK)
            ((status, headers, _),) = answers(receive(connection))
            assert status == 200 and "connection" not in headers
        front.server.connections.is_draining = True
        connection.sendall(ASK)
        ((status, headers, _),) = answers(receive(connection))
        assert (status, headers["connection"]) == (200, "close")
        assert connection.recv(1) == b""
        ((status, headers, _),) = front.ask(ASK)  # who comes anew is answered, too
        assert (status, headers["connection"]) == (200, "close")


def receive(connection: object) -> bytes:
    """Return one answer, by its Content-Length."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(1 << 16)  # type: ignore[attr-defined]
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(1 << 16)  # type: ignore[attr-defined]
    return head + b"\r\n\r\n" + body
