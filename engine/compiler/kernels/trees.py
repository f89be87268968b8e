"""Ensembles of decision trees: sums of what the leaves that a row reaches give each target.

Several trees, or several rows of few trees, are walked at once, because the steps down one tree wait for each other.
Siblings are neighbours, so that a comparison is added to the number of the first. A leaf leads to itself: a walk ends
when two more steps change nothing.

Arguments: features, splits (float32), nodes (int64: the first child above bit 32, the feature below), roots (int32),
values of nodes (0 where not a leaf), base of each target, result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from engine.compiler.codegen.ir import Function, Index, Module, Value, constant, vector
from engine.compiler.kernels.channels import fitting_lanes
from engine.compiler.kernels.kernel import Lines, block_of, start

WALKS: Final = 8
"""Number of trees, times the number of rows, that are walked at once."""
NODE_BYTES: Final = 12
_STEPS: Final = 1 << 30
Comparison = Literal["ole", "olt", "oge", "ogt", "oeq", "une"]


@dataclass(frozen=True, kw_only=True)
class Trees(Lines):
    """result[row] = base + the sum, or the mean, of the values of the leaves that the row reaches.

    Args:
        rows: number of rows of features.
        source: distance of rows of features, in elements.
        targets: number of results of a row.
        group: number of trees that are walked at once; WALKS is a multiple.
        groups: number of groups of trees.
        steps: steps down all trees for one row, for the size of a chunk.
        comparison: of a feature with a split; true goes to the second child.
        has_missing: whether bit 31 of a node says that NaN goes to the second child.
        divisor: number of trees where the mean is taken; 1 for the sum.
    """

    kind = "trees"
    dynamic_fields = ("rows",)
    symbolic_fields = ("source",)
    rows: int
    source: int
    targets: int
    group: int
    groups: int
    steps: int
    comparison: Comparison
    has_missing: bool
    divisor: int

    @property
    def padded(self) -> int:
        """Return the values of a node: the targets, up to whole vectors."""
        return -(-self.targets // self._lanes) * self._lanes

    @property
    def _lanes(self) -> int:
        return fitting_lanes(self.targets, self.host.lanes)

    @property
    def lines(self) -> int:
        return self.rows

    @property
    def line_bytes(self) -> int:
        return NODE_BYTES * self.steps

    @property
    def flops(self) -> int:
        return self.rows * self.steps

    def emit(self, module: Module) -> None:
        f, (features, splits, nodes, roots, values, base, result), chunk = start(module, self, 7)
        begin, end = block_of(f, chunk, self.block, self.rows)
        rows = WALKS // self.group
        whole = f.sub(end, f.divmod(f.sub(end, begin), rows)[1])
        self._each_row(f, begin, end, result, lambda sums: [constant(0.0, each.type) for each in sums])
        with f.loop(0, self.groups) as group:  # outside of rows: the nodes of a group stay in the first-level cache
            first = f.at(roots, f.mul(group.index, self.group))
            starts = [self._index(f, f.at(first, k)) for k in range(self.group)]
            for first_row, last, count in ((begin, whole, rows), (whole, end, 1))[: 2 if rows > 1 else 1]:
                with f.loop(first_row, last, count) as row:
                    numbers = [f.add(row.index, k) for k in range(count)]
                    lines = [f.at(features, f.mul(each, self.source)) for each in numbers]
                    leaves = self._walk(f, lines, splits, nodes, starts)
                    for number, each in zip(numbers, leaves, strict=True):
                        line = f.at(result, f.mul(number, self.targets))
                        self._update(f, line, partial(self._added, f, values, each))
        self._each_row(f, begin, end, result, partial(self._finished, f, base))
        f.finish()

    def _walk(
        self, f: Function, lines: Sequence[Value], splits: Value, nodes: Value, starts: Sequence[Value]
    ) -> list[list[Value]]:
        """Return the leaves that each row reaches in each tree."""
        count = len(starts)
        with f.loop(0, _STEPS, 2, carry=[*starts] * len(lines)) as step:
            below = children = list(step.carried)
            for _ in range(2):
                children = below
                below = [self._child(f, lines[k // count], splits, nodes, at) for k, at in enumerate(children)]
            step.carry(below, condition=_any_differs(f, children, below))
        return [list(step.results[k : k + count]) for k in range(0, count * len(lines), count)]

    def _each_row(
        self, f: Function, begin: Index, end: Index, result: Value, change: Callable[[list[Value]], list[Value]]
    ) -> None:
        with f.loop(begin, end) as row:
            self._update(f, f.at(result, f.mul(row.index, self.targets)), change)

    def _update(self, f: Function, line: Value, change: Callable[[list[Value]], list[Value]]) -> None:
        """Replace the results of a row by others."""
        spans = [(k, min(self._lanes, self.targets - k)) for k in range(0, self.targets, self._lanes)]
        sums = [f.load_lanes(vector(self._lanes), f.at(line, at), count) for at, count in spans]
        for (at, count), each in zip(spans, change(sums), strict=True):
            f.store_lanes(each, f.at(line, at), count)

    @staticmethod
    def _index(f: Function, at: Value) -> Value:
        return f.convert("sext", f.load("i32", at), "i64")

    def _child(self, f: Function, line: Value, splits: Value, nodes: Value, place: Value) -> Value:
        """Return the child of a node to which a row goes on."""
        node = f.load("i64", f.at(nodes, place, 8), 8)
        column = f.binary("and", node, constant((1 << (31 if self.has_missing else 32)) - 1, "i64"))
        x = f.load("float", f.at(line, column))
        is_true = f.compare(self.comparison, x, f.load("float", f.at(splits, place)))
        if self.has_missing:
            goes = f.compare("ne", f.binary("and", node, constant(1 << 31, "i64")), constant(0, "i64"))
            is_true = f.binary("or", is_true, f.binary("and", f.compare("uno", x, x), goes))
        return f.binary("add", f.binary("ashr", node, constant(32, "i64")), f.convert("zext", is_true, "i64"))

    def _added(self, f: Function, values: Value, leaves: Sequence[Value], sums: list[Value]) -> list[Value]:
        """Return the sums with the values of leaves, one tree after the other."""
        found = list(sums)
        for leaf in leaves:
            value = f.at(values, f.mul(leaf, self.padded))
            for k, each in enumerate(found):
                found[k] = f.fadd(each, f.load(each.type, f.at(value, k * self._lanes)))
        return found

    def _finished(self, f: Function, base: Value, sums: list[Value]) -> list[Value]:
        found = []
        for k, each in enumerate(sums):
            at, count = k * self._lanes, min(self._lanes, self.targets - k * self._lanes)
            if self.divisor > 1:
                each = f.binary("fdiv", each, constant(float(self.divisor), each.type))
            found.append(f.fadd(each, f.load_lanes(each.type, f.at(base, at), count)))
        return found


def _any_differs(f: Function, before: Sequence[Value], after: Sequence[Value]) -> Value:
    """Return whether a step has led to another node in any tree."""
    changed = [f.binary("xor", a, b) for a, b in zip(before, after, strict=True)]
    total = changed[0]
    for each in changed[1:]:
        total = f.binary("or", total, each)
    return f.compare("ne", total, constant(0, "i64"))
