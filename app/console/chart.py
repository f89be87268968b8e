"""Layout of a graph for the console: boxes, lines and labels, with folded blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.console.folding import Fold, Path, Traits, Web, find_folds, find_modules, module_of, signature, weave
from app.render.caption import family_of, key_params, output_shapes
from app.render.description import Description, Operator, read_description
from app.render.formatting import shape_text, shortened, text_width
from app.render.layout import Layout, Net, lay_out

# Maximum number of boxes shown at first.
_GLANCE: Final = 64
# Value of `open` that unfolds everything.
ALL: Final = "all"
# Values of `by`: how blocks are formed.
STRUCTURE: Final = "structure"
MODULES: Final = "modules"
# Number of boxes that are readable without zooming.
_FEW: Final = 24
_WIDEST: Final = 46
_TAIL: Final = 20
_HEAD, _LINE, _PADDING, _PILL = 26, 16, 12, 26
_LEAST_WIDTH: Final = 112


@dataclass(frozen=True, slots=True)
class _Box:
    """Drawn box: a unit, or a folded block."""

    units: tuple[int, ...]
    fold: Fold | None
    title: str
    family: str
    lines: tuple[str, ...]
    is_pill: bool = False

    @property
    def size(self) -> tuple[float, float]:
        width = max([text_width(self.title, 12.5) * 1.08, *(text_width(line, 11.5) for line in self.lines)])
        if self.is_pill:
            return round(width + 2 * _PADDING), _PILL
        return max(_LEAST_WIDTH, round(width + 2 * _PADDING)), _HEAD + _LINE * len(self.lines) + 10


def chart(
    data: Mapping[str, Any],
    unfolded: Collection[str] | None = None,
    *,
    fused: bool = True,
    by: str = "",
    shown: int | None = None,
) -> dict[str, Any]:
    """Return the layout in pixels.

    Args:
        data: the engine's description of the graph.
        unfolded: ids of open folds, or ``ALL``; None to unfold as many as fit a first view.
        fused: whether a kernel is one box.
        by: ``MODULES`` (by operator names), ``STRUCTURE``, or empty for the one with fewer boxes.
        shown: index of an operator whose enclosing folds are opened too.
    """
    description = read_description(data)
    web = weave(description, data["operators"], fused=fused)
    drawer, folds, ways = _folded(description, web, by)
    opened = set(_first_look(folds, len(web.units)) if unfolded is None else unfolded)
    if shown is not None:
        opened.update(_around(folds, [at for at, unit in enumerate(web.units) if shown in unit.members]))
    unfolded = frozenset(opened)
    boxes = [*drawer.boxes(folds, unfolded)]
    owner = {unit: at for at, box in enumerate(boxes) for unit in box.units}
    links = _joined(web.links, owner)
    roots = [at for at, box in enumerate(boxes) if drawer.is_input(box.units[0])]
    layout = lay_out([box.size for box in boxes], [Net(source, targets) for _, source, targets in links], roots)
    return {
        "width": layout.width,
        "height": layout.height,
        "nodes": [drawer.node(at, box, layout) for at, box in enumerate(boxes)],
        "edges": [_edge(link, layout, at, description) for at, link in enumerate(links)],
        "open": [_frame(fold, boxes, layout) for fold in _open(folds, unfolded)],
        "folds": sum(1 for _ in _open(folds, (ALL,))),
        "all": ALL in unfolded,
        "by": MODULES if drawer.is_by_name else STRUCTURE,
        "ways": ways,
    }


def _folded(description: Description, web: Web, by: str) -> tuple[_Drawer, tuple[Fold, ...], list[str]]:
    """Return the drawer, its folds, and the available ways of folding."""
    plain, named = _Drawer(description, web), _Drawer(description, web, is_by_name=True)
    structure, traits = find_folds(web, plain.traits()), plain.traits()
    modules = find_modules(named.paths(), lambda item: signature(traits, item), named.is_apart)
    if not modules:
        return plain, structure, [STRUCTURE]
    counts = [len(web.units) - sum(fold.length - 1 for fold in folds) for folds in (structure, modules)]
    is_shorter = counts[1] < counts[0] and counts[0] > _FEW
    if by == MODULES or (by != STRUCTURE and is_shorter):
        return named, modules, [STRUCTURE, MODULES]
    return plain, structure, [STRUCTURE, MODULES]


def _around(folds: Iterable[Fold], units: Sequence[int]) -> Iterator[str]:
    for fold in folds:
        if any(fold.first <= unit <= fold.last for unit in units):
            yield fold.id
            yield from _around(fold.children, units)


@dataclass(frozen=True, slots=True)
class _Drawer:
    description: Description
    web: Web
    is_by_name: bool = False

    def paths(self) -> list[Path | None]:
        """Return the module of every unit, if the name of one of its operators tells it."""
        found = ((module_of(self.description.operators[at].name) for at in unit.members) for unit in self.web.units)
        return [next(filter(None, paths), None) for paths in found]

    def is_apart(self, unit: int) -> bool:
        """Return whether it is an input or output of the graph."""
        return family_of(self.operator(unit).type) == "io"

    def operator(self, unit: int) -> Operator:
        return self.description.operators[self.web.units[unit].head]

    def traits(self) -> Traits:
        """Return the properties of units that folding needs."""
        return Traits(kind=self._kind, size=self._size, is_source=self.is_source, is_tail=self._is_tail)

    def _size(self, unit: int) -> str:
        return output_shapes(self.operator(unit), self.description)

    def _is_tail(self, unit: int) -> bool:
        return family_of(self.operator(unit).type) == "activation"

    def _kind(self, unit: int) -> str:
        """Return type and kernel size; channels and names differ between stages."""
        operator = self.operator(unit)
        return f"{operator.type}{operator.params.get('kernel_size', '')}"

    def is_source(self, unit: int) -> bool:
        members = [self.description.operators[at] for at in self.web.units[unit].members]
        return not any(each.inputs or each.type == "pnnx.Input" for each in members)

    def is_input(self, unit: int) -> bool:
        return self.operator(unit).type == "pnnx.Input"

    def boxes(self, folds: Sequence[Fold], unfolded: Collection[str]) -> Iterator[_Box]:
        """Yield the boxes in execution order."""
        yield from self._within(0, len(self.web.units) - 1, folds, unfolded)

    def _within(self, first: int, last: int, folds: Sequence[Fold], unfolded: Collection[str]) -> Iterator[_Box]:
        at = first
        for fold in folds:
            yield from (self._unit(unit) for unit in range(at, fold.first))
            if ALL in unfolded or fold.id in unfolded:
                yield from self._within(fold.first, fold.last, fold.children, unfolded)
            else:
                yield self._fold(fold)
            at = fold.last + 1
        yield from (self._unit(unit) for unit in range(at, last + 1))

    def _unit(self, at: int) -> _Box:
        unit, operator = self.web.units[at], self.operator(at)
        family = family_of(operator.type)
        if family == "io" or operator.type == "pnnx.Attribute":
            operand = self.description.operands.get((*operator.outputs, *operator.inputs, "")[0])
            shape = shape_text(operand.shape) if operand is not None else ""
            name = shortened(operator.name, _WIDEST, _TAIL)
            return _Box((at,), None, f"{name}  {shape}".strip(), family, (), is_pill=True)
        more = [self.description.operators[member] for member in unit.members[1:]]
        lines = [
            shortened(operator.name, _WIDEST, _TAIL),
            shortened(key_params(operator), _WIDEST),
            shortened("+ " + ", ".join(_word(each.type) for each in more), _WIDEST) if more else "",
        ]
        return _Box((at,), None, shortened(operator.type, _WIDEST), family, tuple(filter(None, lines)))

    def _fold(self, fold: Fold) -> _Box:
        units = tuple(range(fold.first, fold.last + 1))
        operators = [self.operator(unit) for unit in units]
        families = Counter(family_of(each.type) for each in operators)
        types = Counter(_word(each.type) for each in operators)
        count = sum(len(self.web.units[unit].members) for unit in units)
        lines = [
            shortened(
                ", ".join(f"{each} {word}" if each > 1 else word for word, each in types.most_common(4)), _WIDEST
            ),
            " · ".join(filter(None, (f"{count} operators", output_shapes(operators[-1], self.description)))),
        ]
        family = max(families, key=lambda each: (each in ("conv", "linear", "attention", "recurrent"), families[each]))
        return _Box(units, fold, self._title(fold), family, tuple(lines))

    def _title(self, fold: Fold) -> str:
        path = self._path(fold)
        word = path if path and (self.is_by_name or not path[0].isdigit()) else self._nature(fold)
        if self.is_by_name and path and fold.repeats > 1:
            word = f"{path}.*"
        return f"{fold.repeats} × {word}" if fold.repeats > 1 else word

    def _nature(self, fold: Fold) -> str:
        if fold.length == fold.repeats:
            return _word(self.operator(fold.first).type)
        members = [at for unit in range(fold.first, fold.last + 1) for at in self.web.units[unit].members]
        joins = [each for each in (self.description.operators[at] for at in members) if len(each.inputs) > 1]
        if not joins:
            return "block"
        return "residual block" if family_of(joins[-1].type) == "expression" else f"{_word(joins[-1].type)} block"

    def _path(self, fold: Fold) -> str:
        """The module that all names in it begin with."""
        members = [at for unit in range(fold.first, fold.last + 1) for at in self.web.units[unit].members]
        paths = [path for path in (module_of(self.description.operators[at].name) for at in members) if path]
        shared = paths[0] if paths else ()
        for path in paths[1:]:
            same = [one == other for one, other in zip(shared, path, strict=False)]
            shared = shared[: (*same, False).index(False)]
        return ".".join(shared)

    def node(self, at: int, box: _Box, layout: Layout) -> dict[str, Any]:
        """A box as plain data."""
        place = layout.boxes[at]
        members = [self.description.operators[each] for unit in box.units for each in self.web.units[unit].members]
        row: dict[str, Any] = {
            "id": box.fold.id if box.fold is not None else str(members[0].index),
            "kind": "pill" if box.is_pill else "operator" if box.fold is None else "fold",
            "x": place.x, "y": place.y, "width": place.width, "height": place.height,
            "family": box.family,
            "title": box.title,
            "lines": box.lines,
            "operators": [each.index for each in members],
        }  # fmt: skip
        return row if box.fold is None else {**row, "repeats": box.fold.repeats}


def _word(operator_type: str) -> str:
    return operator_type.rpartition(".")[2].rpartition("::")[2]


def _joined(
    links: Iterable[tuple[str, int, tuple[int, ...]]], owner: Mapping[int, int]
) -> list[tuple[str, int, tuple[int, ...]]]:
    """Links between boxes; what stays within one is none."""
    found = []
    for name, source, targets in links:
        outside = tuple(sorted({owner[target] for target in targets} - {owner[source]}))
        if outside:
            found.append((name, owner[source], outside))
    return found


def _edge(link: tuple[str, int, tuple[int, ...]], layout: Layout, at: int, description: Description) -> dict[str, Any]:
    name, source, targets = link
    operand, route = description.operands.get(name), layout.routes[at]
    return {
        "operand": name,
        "source": source,
        "targets": targets,
        "strokes": route.strokes,
        "heads": route.heads,
        "shape": None if operand is None else operand.shape,
        "dtype": None if operand is None else operand.dtype,
    }


def _open(folds: Iterable[Fold], unfolded: Collection[str]) -> Iterator[Fold]:
    """Yield open folds that are not inside a closed one."""
    for fold in folds:
        if ALL in unfolded or fold.id in unfolded:
            yield fold
            yield from _open(fold.children, unfolded)


def _first_look(folds: Sequence[Fold], count: int) -> Iterator[str]:
    """Yield the largest folds to open at first, up to the maximum number of boxes."""
    shut = list(folds)
    boxes = count - sum(fold.length - 1 for fold in folds)
    while shut:
        fold = max(shut, key=lambda each: each.length)
        shut.remove(fold)
        inside = fold.length - sum(child.length - 1 for child in fold.children)
        if fold.repeats == 1 and fold.length > count / 3 and boxes + inside - 1 <= _GLANCE:
            yield fold.id
            boxes += inside - 1
            shut += fold.children


def _frame(fold: Fold, boxes: Sequence[_Box], layout: Layout) -> dict[str, Any]:
    """Return the frame around the boxes of an open fold."""
    places = [
        layout.boxes[at] for at, box in enumerate(boxes) if fold.first <= box.units[0] and box.units[-1] <= fold.last
    ]
    left, top = min(place.x for place in places), min(place.y for place in places)
    right, bottom = max(place.x + place.width for place in places), max(place.y + place.height for place in places)
    return {"id": fold.id, "repeats": fold.repeats, "x": left, "y": top, "width": right - left, "height": bottom - top}
