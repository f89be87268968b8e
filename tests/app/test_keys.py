"""Tests of key files: read again on changes, kept if invalid, and warnings about permissions."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from app.keys import Group, Keys, open_keys
from app.settings import Settings, SettingsError

KEY, OTHER = "0123456789abcdef", "fedcba9876543210"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def open_file(path: Path) -> Keys:
    keys = open_keys(Settings(keys_file=path))
    assert keys is not None
    return keys


def test_a_file_may_be_lines_or_toml(tmp_path: Path) -> None:
    for name, text in (("keys", f"infer: {KEY}\n"), ("keys.toml", f'infer = ["{KEY}"]\n')):
        assert open_file(write(tmp_path / name, text)).ring.rights(KEY.encode()) == {Group.INFER}


def test_a_link_is_followed_as_those_of_mounted_secrets_must_be(tmp_path: Path) -> None:
    write(tmp_path / "real", f"infer: {KEY}")
    (tmp_path / "link").symlink_to("real")
    assert open_file(tmp_path / "link").ring.rights(KEY.encode()) == {Group.INFER}


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("keys", None, "does not exist|No such file|missing"),
        ("keys", "", "found no key, expected at least one"),
        ("keys", "# nothing\n", "found no key, expected at least one"),
        ("keys", KEY, "line 1: found another form, expected 'group: key'"),
        ("keys.toml", f"infer = {KEY}", "not valid TOML .at line 1"),
        ("keys.toml", f"infer = '{KEY}", "not valid TOML .at line 1|not valid TOML .at end"),
    ],
)
def test_a_file_that_is_no_good_is_told_at_the_start_without_what_stands_in_it(
    tmp_path: Path, name: str, text: str | None, told: str
) -> None:
    if text is not None:
        write(tmp_path / name, text)
    with pytest.raises(SettingsError, match=told) as caught:
        open_file(tmp_path / name)
    assert KEY not in str(caught.value)


def test_a_file_that_changes_is_read_once_it_is_at_rest(tmp_path: Path) -> None:
    path = write(tmp_path / "keys", f"infer: {KEY}")
    keys = open_file(path)
    write(path, f"admin: {OTHER}\n")
    keys.look()
    assert keys.ring.rights(OTHER.encode()) is None
    keys.look()
    assert (keys.ring.rights(KEY.encode()), keys.ring.rights(OTHER.encode())) == (None, {Group.ADMIN})


@pytest.mark.parametrize("text", [None, "", f"root: {OTHER}"])
def test_a_file_that_is_no_good_any_more_changes_nothing(
    tmp_path: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "keys", f"infer: {KEY}")
    keys = open_file(path)
    path.unlink()
    if text is not None:
        write(path, text)
    for _ in range(4):
        keys.look()
    assert keys.ring.rights(KEY.encode()) == {Group.INFER}
    assert caplog.text.count("the keys read before stay in use") == 1 and OTHER not in caplog.text


@pytest.mark.parametrize(("mode", "told"), [(0o600, ""), (0o640, ""), (0o644, "is readable"), (0o646, "is writable")])
def test_a_file_that_others_may_read_is_warned_about(
    tmp_path: Path, mode: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "keys", f"infer: {KEY}")
    path.chmod(mode)
    keys = open_keys(Settings(keys_file=path, reload_interval_s=0))
    assert keys is not None
    keys.start()
    warned = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == bool(told) and told in caplog.text and KEY not in caplog.text


def test_nothing_looks_when_nothing_is_to_be_looked_at(tmp_path: Path) -> None:
    path = write(tmp_path / "keys", f"infer: {KEY}")
    for settings, is_watched in (
        (Settings(keys_file=path, reload_interval_s=0), False),
        (Settings(keys=f"infer: {KEY}"), False),
        (Settings(keys_file=path, reload_interval_s=3600), True),
    ):
        others = set(threading.enumerate())
        keys = Keys(settings)
        keys.start()
        started = [each.name for each in threading.enumerate() if each not in others]
        keys.close()
        assert started.count("keys") == is_watched  # others are of servers beside this test


def test_without_keys_there_is_nothing_to_open() -> None:
    assert open_keys(Settings()) is None
    with pytest.raises(SettingsError, match=r"^keys: found no key"):
        open_keys(Settings(keys=" "))


def test_settings_do_not_show_their_secrets() -> None:
    settings = Settings(keys=f"infer: {KEY}", tls_key_password=OTHER)
    for shown in (repr(settings), str(settings), settings.model_dump_json(), repr(settings.model_dump())):
        assert KEY not in shown and OTHER not in shown
