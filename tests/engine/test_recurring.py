"""What comes a second time is kept, as long as it is used."""

from __future__ import annotations

from engine.recurring import Recurring


def test_what_comes_once_is_not_worth_keeping() -> None:
    kept: Recurring[str, int] = Recurring(4, 10)
    assert [kept.comes_again(each) for each in ("a", "b", "a", "a", "c")] == [False, False, True, True, False]


def test_what_was_not_used_for_longest_goes() -> None:
    kept: Recurring[str, int] = Recurring(3, 10)
    for number, key in enumerate("abc"):
        kept.keep(key, number)
    assert kept.find("a") == 0
    kept.keep("d", 3)
    assert [kept.find(each) for each in "abcd"] == [0, None, 2, 3] and len(kept) == 3


def test_what_was_met_is_forgotten_when_there_is_too_much_of_it() -> None:
    kept: Recurring[int, int] = Recurring(4, 3)
    assert not any(kept.comes_again(each) for each in range(4))
    assert not kept.comes_again(0) and kept.comes_again(3)


def test_cleared_it_keeps_what_comes_again_at_once() -> None:
    kept: Recurring[str, int] = Recurring(4, 10)
    kept.comes_again("a")
    kept.keep("a", 1)
    kept.clear()
    assert kept.find("a") is None and kept.comes_again("a")


def test_where_most_come_again_an_eager_one_keeps_at_once() -> None:
    few: Recurring[int, int] = Recurring(10, 100, is_eager=True)
    many: Recurring[int, int] = Recurring(10, 100, is_eager=True)
    patient: Recurring[int, int] = Recurring(10, 100)

    def is_kept(kept: Recurring[int, int], key: int) -> bool:
        if kept.find(key) is not None:
            return True
        if is_worth := kept.comes_again(key):
            kept.keep(key, 1)
        return is_worth

    for kept in (few, patient):
        assert [is_kept(kept, each) for each in (1, 2, 1, 2, 1, 2)] == [False, False, True, True, True, True]
    assert is_kept(few, 3) and not is_kept(patient, 3)
    assert not any(is_kept(many, each) for each in range(4, 20))
