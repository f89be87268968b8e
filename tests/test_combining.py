"""Every two values of different parameters meet in some combination."""

from __future__ import annotations

from itertools import combinations, product

from tests.combining import together

AXES = (("level", ["a", "b", "c"]), ("size,is_odd", {(1, True): 0, (2, False): 0}), ("shape", [(), (1,), (2, 3), (4,)]))


def test_every_two_values_meet() -> None:
    mark = together(*AXES).mark
    assert mark.args[0] == "level,size,is_odd,shape"
    rows = [((level,), (size, is_odd), (shape,)) for level, size, is_odd, shape in mark.args[1]]
    values = [[value if "," in names else (value,) for value in given] for names, given in AXES]
    for first, second in combinations(range(len(AXES)), 2):
        met = {(row[first], row[second]) for row in rows}
        assert met == set(product(values[first], values[second]))
