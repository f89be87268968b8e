"""Answers as the bytes that a connection sends, where there is no app to make them."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus


def json_answer(status: int, body: bytes, request_id: str, headers: Mapping[str, str]) -> bytes:
    """A whole answer.

    Args:
        body: JSON.
        headers: beside those that every such answer has.
    """
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()]).encode("latin-1")
    return (
        b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nx-request-id: %b\r\n%b%b\r\n%b"
        % (
            status,
            HTTPStatus(status).phrase.encode(),
            len(body),
            request_id.encode("latin-1"),
            b"x-content-type-options: nosniff\r\n",
            lines,
            body,
        )
    )
