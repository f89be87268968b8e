"""Shuffles across several vectors, and transposition in registers."""

from __future__ import annotations

from collections.abc import Sequence

from engine.compiler.codegen.ir import Function, Value, lanes_of

# Lanes of a 128-bit part: shuffles across parts are more expensive.
PART = 4


def gather(f: Function, vectors: Sequence[Value], picks: Sequence[tuple[int, int] | None]) -> Value:
    """Emit one vector of lanes picked as (vector, lane) from several of the same size."""
    lanes = len(picks)
    used = sorted({pick[0] for pick in picks if pick is not None})
    result = vectors[used[0]]
    if len(used) == 1:
        places = [None if pick is None else pick[1] for pick in picks]
        return result if all(p in (None, lane) for lane, p in enumerate(places)) else f.shuffle(result, result, places)
    for number, index in enumerate(used[1:]):
        done = set(used[: number + 1])
        kept = [
            (pick[1] if number == 0 else lane) if pick is not None and pick[0] in done else None
            for lane, pick in enumerate(picks)
        ]
        places = [
            lanes + pick[1] if pick is not None and pick[0] == index else place
            for pick, place in zip(picks, kept, strict=True)
        ]
        result = f.shuffle(result, vectors[index], places)
    return result


def transpose_block(f: Function, lines: Sequence[Value]) -> list[Value]:
    """Emit the transposition of a square block: as many rows as lanes, at least four."""
    lanes = len(lines)
    parts = range(0, lanes, PART)
    low = [part + k // 2 + lanes * (k % 2) for part in parts for k in range(4)]
    columns: list[list[Value]] = []
    for group in range(0, lanes, PART):
        pairs = (lines[group], lines[group + 1]), (lines[group + 2], lines[group + 3])
        ab, cd = ([f.shuffle(x, y, [p + up for p in low]) for up in (0, 2)] for x, y in pairs)
        columns.append([_join(f, x, y, up) for x, y in zip(ab, cd, strict=True) for up in (0, 2)])
    # columns[g][c]: in part q the four elements of column 4q + c from the rows of group g.
    result: list[Value] = [lines[0]] * lanes
    for c in range(PART):
        for q, line in enumerate(_transpose_parts(f, [group[c] for group in columns])):
            result[PART * q + c] = line
    return result


def _join(f: Function, x: Value, y: Value, up: int) -> Value:
    """Emit the lower or upper two lanes of every part of x and of y."""
    lanes = lanes_of(x.type)
    places = [part + up + k % 2 + lanes * (k // 2) for part in range(0, lanes, PART) for k in range(4)]
    return f.shuffle(x, y, places)


def _transpose_parts(f: Function, lines: list[Value]) -> list[Value]:
    """Transpose a block of 128-bit parts, in log2 steps."""
    lanes, distance = PART * len(lines), 1
    while distance < len(lines):
        lower = [PART * (p if not p & distance else p - distance) + k for p in range(len(lines)) for k in range(PART)]
        upper = [PART * (p if p & distance else p + distance) + k for p in range(len(lines)) for k in range(PART)]
        second = [bool(p & distance) for p in range(len(lines)) for _ in range(PART)]
        following = list(lines)
        for k in range(len(lines)):
            if not k & distance:
                a, b = lines[k], lines[k + distance]
                following[k] = f.shuffle(a, b, [p + lanes * s for p, s in zip(lower, second, strict=True)])
                following[k + distance] = f.shuffle(a, b, [p + lanes * s for p, s in zip(upper, second, strict=True)])
        lines, distance = following, 2 * distance
    return lines
