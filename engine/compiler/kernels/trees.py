"""Ensembles of decision trees: sums of what the leaves that a row reaches give each target.

Several trees are walked at once, because the steps down one tree wait for each other. A leaf is a node whose children
are itself, so that a group of trees takes as many steps as its longest path needs, two for each branch.

Arguments: features, nodes (split, feature, child where false, child where true; 32 bits each), roots (int32), depths of
groups (int32), values of nodes (0 where not a leaf), base of each target, result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from engine.compiler.codegen.ir import Function, Index, Module, Value, constant, vector
from engine.compiler.kernels.channels import fitting_lanes
from engine.compiler.kernels.kernel import Lines, block_of, start

GROUP: Final = 8
"""Number of trees that are walked at once."""
NODE: Final = 4
"""Numbers of a node."""
Comparison = Literal["ole", "olt", "oge", "ogt", "oeq", "une"]


@dataclass(frozen=True, kw_only=True)
class Trees(Lines):
    """result[row] = base + the sum, or the mean, of the values of the leaves that the row reaches.

    Args:
        rows: number of rows of features.
        source: distance of rows of features, in elements.
        targets: number of results of a row.
        groups: number of groups of GROUP trees.
        steps: steps down all trees for one row, for the size of a chunk.
        comparison: of a feature with a split; true goes to the second child.
        has_missing: whether bit 31 of a node's feature says that NaN goes to the second child.
        divisor: number of trees where the mean is taken; 1 for the sum.
    """

    kind = "trees"
    dynamic_fields = ("rows",)
    symbolic_fields = ("source",)
    rows: int
    source: int
    targets: int
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
        return 4 * NODE * self.steps

    @property
    def flops(self) -> int:
        return self.rows * self.steps

    def emit(self, module: Module) -> None:
        f, (features, nodes, roots, depths, values, base, result), chunk = start(module, self, 7)
        begin, end = block_of(f, chunk, self.block, self.rows)
        self._each_row(f, begin, end, result, lambda sums: [constant(0.0, each.type) for each in sums])
        with f.loop(0, self.groups) as group:  # outside of rows: the nodes of a group stay in the first-level cache
            first, depth = f.at(roots, f.mul(group.index, GROUP)), self._index(f, f.at(depths, group.index))
            places = [self._index(f, f.at(first, k)) for k in range(GROUP)]
            with f.loop(begin, end) as row:
                line = f.at(features, f.mul(row.index, self.source))
                with f.loop(0, depth, 2, carry=places) as step:
                    children = [self._child(f, line, nodes, place) for place in step.carried]
                    below = [self._child(f, line, nodes, place) for place in children]
                    step.carry(below, condition=_any_differs(f, children, below))
                self._update(
                    f, f.at(result, f.mul(row.index, self.targets)), partial(self._added, f, values, step.results)
                )
        self._each_row(f, begin, end, result, partial(self._finished, f, base))
        f.finish()

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

    def _child(self, f: Function, line: Value, nodes: Value, place: Value) -> Value:
        """Return the child of a node to which a row goes on."""
        node = f.at(nodes, f.mul(place, NODE))
        feature = f.load("i32", f.at(node, 1))
        column = feature if not self.has_missing else f.binary("and", feature, constant((1 << 31) - 1, "i32"))
        x = f.load("float", f.at(line, f.convert("zext", column, "i64")))
        is_true = f.compare(self.comparison, x, f.load("float", node))
        if self.has_missing:
            goes = f.binary("and", f.compare("uno", x, x), f.compare("slt", feature, constant(0, "i32")))
            is_true = f.binary("or", is_true, goes)
        child = f.at(f.at(node, 2), f.convert("zext", is_true, "i64"))
        return self._index(f, child)

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
