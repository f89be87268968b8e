"""Tests that the table of engine errors is complete, and that all errors have one form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import engine
from app import errors
from app.errors import ENGINE_STATUS, RetryLaterError, ServiceError, from_engine, http_error


def family(cls: type) -> Iterator[type]:
    yield cls
    for child in cls.__subclasses__():
        yield from family(child)


CLIENT_ERRORS = [cls for cls in family(ServiceError) if cls not in (ServiceError, RetryLaterError)]


def test_every_engine_error_has_a_status() -> None:
    public = {vars(engine)[name] for name in engine.__all__}
    assert public & set(family(engine.EngineError)) == set(ENGINE_STATUS)


@pytest.mark.parametrize("cls", ENGINE_STATUS)
def test_an_engine_error_is_told_as_its_status_says_and_ours_without_the_inside(cls: type[engine.EngineError]) -> None:
    told = from_engine(cls("secret", where="input 'x'", found=1, expected=2), "m")
    assert told.status == ENGINE_STATUS[cls]
    assert ("secret" in told.message) == (told.status == 422)


def test_an_engine_error_of_a_users_own_kind_is_told_as_its_parents() -> None:
    class OwnError(engine.InputError):
        pass

    assert from_engine(OwnError("x"), "m").status == 422


@pytest.mark.parametrize("cls", CLIENT_ERRORS)
def test_every_error_has_a_row_in_the_tree_and_in_the_documentation(cls: type[ServiceError]) -> None:
    assert f"{cls.status}" in (errors.__doc__ or "") and cls.code in (errors.__doc__ or "")
    text = (Path(__file__).parent.parent.parent / "docs" / "http.md").read_text()
    assert f"| {cls.status} | `{cls.code}` |" in text


@pytest.mark.parametrize("status", [400, 404, 405, 413, 418, 422, 500, 503])
def test_the_frameworks_statuses_keep_their_class(status: int) -> None:
    error = http_error(status, "x")
    assert error.status // 100 == status // 100
