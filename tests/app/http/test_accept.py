"""Tests of content negotiation (RFC 9110)."""

from __future__ import annotations

import pytest

from app.errors import NotAcceptableError
from app.http.routes.infer import choose

OFFERED = ("application/json", "application/x-npz")


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/x-npz", "application/x-npz"),
        ("Application/X-NPZ", "application/x-npz"),
        ("application/*", "application/json"),
        ("application/json;q=0.5, application/x-npz", "application/x-npz"),
        ("application/x-npz;q=0.5, */*", "application/json"),
        ("application/json;q=0, */*;q=0.1", "application/x-npz"),
        ("text/html, image/png, */*;q=0.8", "application/json"),
        ("application/json; charset=utf-8; q=1", "application/json"),
    ],
)
def test_the_client_gets_what_it_likes_best(accept: str, expected: str) -> None:
    assert choose(accept, OFFERED) == expected


@pytest.mark.parametrize("accept", ["image/png", "application/json;q=0", "text/*", "*/*;q=x"])
def test_what_there_is_not_is_refused_with_what_there_is(accept: str) -> None:
    with pytest.raises(NotAcceptableError, match="expected one of application/json, application/x-npz"):
        choose(accept, OFFERED)
