"""Ensembles of decision trees: sums of what the leaves that a row reaches give each target.

The first branches of a tree, up to EXITS - 1, are evaluated all, for a vector of rows: a branch that is not taken as
compared clears the bits of the exits on its other side, and the first bit that is left is the exit [Lucchese et al.,
QuickScorer, SIGIR 2015]. From there, several trees, or several rows of few trees, are walked at once, because the steps
down one tree wait for each other. Siblings are neighbours, so that a comparison is added to the number of the first. A
leaf leads to itself: a walk ends when two more steps change nothing. Of few rows, all trees are walked from the root.

Arguments: features, splits (float32), nodes (int64: the first child above bit 32, the feature below), ends of the first
branches of trees (int32), splits of the branches, branches (int64: the bits of exits above bit 32, the place of the
feature among those of branches below),
features that these compare (int32), exits (int32: EXITS nodes a tree), values of nodes (0 where not a leaf), base of
each target, result. The first nodes are the roots of trees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from engine.compiler.codegen.ir import Function, Index, Module, Value, as_value, constant, vector
from engine.compiler.kernels.channels import fitting_lanes
from engine.compiler.kernels.kernel import Lines, block_of, start

EXITS: Final = 32
"""Number of exits of a tree's first branches, a bit each."""
_FEW_ROWS: Final = 3
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
        columns: number of features that the first branches compare.
        source: distance of rows of features, in elements.
        targets: number of results of a row.
        group: number of trees that are walked at once; WALKS is a multiple.
        groups: number of groups of trees.
        steps: steps down all trees for one row, for the size of a chunk.
        comparison: of a feature with a split; true goes to the second child.
        has_missing: whether bit 31 of a node says that NaN goes to the second child.
        is_deep: whether trees go on behind their exits.
        divisor: number of trees where the mean is taken; 1 for the sum.
    """

    kind = "trees"
    dynamic_fields = ("rows",)
    symbolic_fields = ("source",)
    rows: int
    columns: int
    source: int
    targets: int
    group: int
    groups: int
    steps: int
    comparison: Comparison
    has_missing: bool
    is_deep: bool
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
        """Bytes of nodes that a row visits, of which a vector of rows in a chunk has one copy in the caches."""
        return min(NODE_BYTES * self.steps, self.host.chunk_bytes // self.host.lanes)

    @property
    def flops(self) -> int:
        return self.rows * self.steps

    def emit(self, module: Module) -> None:
        f, (features, *tables, values, base, result), chunk = start(module, self, 11)
        lanes = self.host.lanes
        block = f.reserve(self.columns * lanes, 4)
        masks = f.reserve(self.group * lanes, 4)
        begin, end = block_of(f, chunk, self.block, self.rows)
        rows = WALKS // self.group
        self._each_row(f, begin, end, result, lambda sums: [constant(0.0, each.type) for each in sums])
        with f.loop(begin, end, lanes) as first_row:
            stop = f.minimum(f.add(first_row.index, lanes), end)
            are_few = f.less(f.sub(stop, first_row.index), _FEW_ROWS + 1)
            self._transpose(f, features, tables[5], block, first_row.index, stop)
            whole = f.sub(stop, f.divmod(f.sub(stop, first_row.index), rows)[1])
            with f.loop(0, self.groups) as group:
                tree = f.mul(group.index, self.group)
                with f.loop(0, self.group) as each:
                    exits = self._exits(f, block, tables[2:5], f.add(tree, each.index), are_few)
                    f.store(exits, f.at(masks, f.mul(each.index, lanes)))
                spans = ((first_row.index, whole, rows), (whole, stop, 1))[: 2 if rows > 1 else 1]
                for first, last, count in spans:
                    with f.loop(first, last, count) as row:
                        numbers = [f.add(row.index, k) for k in range(count)]
                        lines = [f.at(features, f.mul(number, self.source)) for number in numbers]
                        at = [f.at(masks, f.sub(number, first_row.index)) for number in numbers]
                        leaves = self._starts(f, at, tables[6], tree, are_few)
                        steps = f.select(are_few, constant(_STEPS, "i64"), constant(_STEPS * self.is_deep, "i64"))
                        leaves = self._walk(f, lines, tables[0], tables[1], leaves, steps)
                        for number, each_row in zip(numbers, leaves, strict=True):
                            line = f.at(result, f.mul(number, self.targets))
                            self._update(f, line, partial(self._added, f, values, each_row))
        self._each_row(f, begin, end, result, partial(self._finished, f, base))
        f.finish()

    def _transpose(self, f: Function, features: Value, used: Value, block: Value, begin: Index, end: Index) -> None:
        """Copy rows of features to columns of a block."""
        with f.loop(begin, end) as row, f.loop(0, self.columns) as column:
            feature = self._index(f, f.at(used, column.index))
            x = f.load("float", f.at(features, f.add(f.mul(row.index, self.source), feature)))
            place = f.add(f.mul(column.index, self.host.lanes), f.sub(row.index, begin))
            f.store(x, f.at(block, place))

    def _exits(self, f: Function, block: Value, branches: Sequence[Value], tree: Index, are_few: Value) -> Value:
        """Return a bit for each exit of a tree that a row may take; it takes the lowest."""
        lanes, (ends, splits, words) = self.host.lanes, branches
        first, last = self._index(f, f.at(ends, tree)), self._index(f, f.at(ends, f.add(tree, 1)))
        last = f.select(are_few, first, last)
        ones = f.splat(constant(-1, "i32"), lanes)
        with f.loop(first, last, carry=[ones]) as branch:
            word = f.load("i64", f.at(words, branch.index, 8), 8)
            column = f.binary("and", word, constant((1 << 31) - 1, "i64"))
            x = f.load(vector(lanes), f.at(block, f.mul(column, lanes)))
            split = f.splat(f.load("float", f.at(splits, branch.index)), lanes)
            is_true = f.compare(self.comparison, x, split)
            if self.has_missing:
                goes = f.compare("ne", f.binary("and", word, constant(1 << 31, "i64")), constant(0, "i64"))
                is_true = f.binary("or", is_true, f.binary("and", f.compare("uno", x, x), f.splat(goes, lanes)))
            others = f.convert("trunc", f.binary("lshr", word, constant(32, "i64")), "i32")
            (bits,) = branch.carried
            branch.carry([f.select(is_true, bits, f.binary("and", bits, f.splat(others, lanes)))])
        return branch.results[0]

    def _starts(
        self, f: Function, masks: Sequence[Value], exits: Value, tree: Index, are_few: Value
    ) -> list[list[Value]]:
        """Return the node from which each row walks down each tree."""
        found = []
        for mask in masks:
            bits = [f.load("i32", f.at(mask, k * self.host.lanes)) for k in range(self.group)]
            numbers = [f.call("llvm.cttz.i32", [each, constant(1, "i1")], "i32") for each in bits]
            own = [f.at(exits, f.mul(f.add(tree, k), EXITS)) for k in range(self.group)]
            places = [f.at(each, f.convert("zext", k, "i64")) for each, k in zip(own, numbers, strict=True)]
            roots = [as_value(f.add(tree, k)) for k in range(self.group)]
            reached = [self._index(f, each) for each in places]
            found.append([f.select(are_few, a, b) for a, b in zip(roots, reached, strict=True)])
        return found

    def _walk(
        self,
        f: Function,
        lines: Sequence[Value],
        splits: Value,
        nodes: Value,
        begin: Sequence[Sequence[Value]],
        steps: Value,
    ) -> list[list[Value]]:
        """Return the leaves that each row reaches in each tree from a node."""
        with f.loop(0, steps, 2, carry=[each for row in begin for each in row]) as step:
            below = children = list(step.carried)
            for _ in range(2):
                children = below
                below = [self._child(f, lines[k // self.group], splits, nodes, at) for k, at in enumerate(children)]
            step.carry(below, condition=_any_differs(f, children, below))
        return [list(step.results[k : k + self.group]) for k in range(0, len(step.results), self.group)]

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
