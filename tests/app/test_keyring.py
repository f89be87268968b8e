"""Tests of lists of keys, and that nothing of a key is revealed."""

from __future__ import annotations

import pickle
import subprocess
from hashlib import sha256

import pytest

from app.keys import Group, Keyring, KeyringError, merged, parse_lines, parse_table

KEY, OTHER = "0123456789abcdef", "fedcba9876543210-_~+/.=="


def test_a_line_gives_a_key_its_groups_and_further_lines_add_to_them() -> None:
    ring = Keyring(parse_lines(f"# comment\n\n infer, metadata: {KEY} \nadmin: {KEY}; metrics: {OTHER}"))
    assert ring.rights(KEY.encode()) == {Group.INFER, Group.METADATA, Group.ADMIN}
    assert ring.rights(OTHER.encode()) == {Group.METRICS}


def test_a_table_holds_keys_one_by_one_or_in_lists() -> None:
    ring = Keyring(parse_table({"infer": [KEY, OTHER], "admin": OTHER}))
    assert ring.rights(KEY.encode()) == {Group.INFER}
    assert ring.rights(OTHER.encode()) == {Group.INFER, Group.ADMIN}


def test_a_key_may_stand_as_the_digest_that_sha256sum_writes() -> None:
    done = subprocess.run(["sha256sum"], input=KEY.encode(), capture_output=True, check=True)
    digest = done.stdout.split()[0].decode()
    for stated in (digest, digest.upper()):
        ring = Keyring(parse_lines(f"infer: sha256:{stated}"))
        assert ring.rights(KEY.encode()) == {Group.INFER}
        assert ring.rights(f"sha256:{stated}".encode()) is None


@pytest.mark.parametrize("key", [b"", b"0123456789abcde", b"0123456789abcdef0", b"0123456789ABCDEF", b"\xff" * 9000])
def test_other_keys_are_not_known(key: bytes) -> None:
    assert Keyring(parse_lines(f"infer: {KEY}")).rights(key) is None


def test_a_ring_of_no_keys_knows_none() -> None:
    assert Keyring({}).rights(b"") is None


def test_rights_of_several_sources_are_joined() -> None:
    ring = Keyring(merged(parse_lines(f"infer: {KEY}"), parse_lines(f"admin: {KEY}")))
    assert ring.rights(KEY.encode()) == {Group.INFER, Group.ADMIN}


@pytest.mark.parametrize(
    "text",
    [KEY, f"root: {KEY}", f"{KEY}: infer", f"infer {KEY}", "infer: short", f"infer: {KEY} {KEY}", "infer: sha256:12",
     f"infer: {KEY}ä", f"INFER: {KEY}", f"infer,: {KEY}", "infer:", f"infer: sha256:{'g' * 64}",
     f"infer: {'x' * 2000}"],
)  # fmt: skip
def test_lines_that_do_not_fit_are_refused_by_their_number_and_not_quoted(text: str) -> None:
    with pytest.raises(KeyringError, match="^line 2: ") as caught:
        parse_lines(f"# first\n{text}")
    told = str(caught.value)
    assert KEY not in told and "short" not in told and "ggg" not in told and "xxx" not in told


@pytest.mark.parametrize(
    "table", [{"root": KEY}, {"infer": 1}, {"infer": [[KEY]]}, {"infer": ["short"]}, {KEY: "infer"}]
)
def test_tables_that_do_not_fit_are_refused_and_not_quoted(table: dict[str, object]) -> None:
    with pytest.raises(KeyringError) as caught:
        parse_table(table)
    assert KEY not in str(caught.value) and "short" not in str(caught.value)


def test_a_ring_keeps_no_key() -> None:
    ring = Keyring(parse_lines(f"infer: {KEY}"))
    assert KEY.encode() not in pickle.dumps(vars(ring)) and KEY not in repr(vars(ring))


def test_two_rings_look_the_same_key_up_under_different_names() -> None:
    first, second = (Keyring(parse_lines(f"infer: {KEY}")) for _ in range(2))
    digest = sha256(KEY.encode()).digest()
    assert first._blind(digest) != second._blind(digest)
