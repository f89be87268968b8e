"""Tables for a terminal, and the graph as one: an operator per line in execution order, suitable for ``diff``."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from app.messages import printable
from app.render.caption import output_shapes
from app.render.description import Description, Operator
from app.render.formatting import count_text, params_text, percent_text, time_text, totals_text

_NUMBERS = frozenset({"#", "flops", "time", "share"})


def render_text(description: Description) -> str:
    """Return aligned columns, totals and warnings; control characters in texts of the model are escaped."""
    columns = _columns(description)
    rows = [list(columns), *map(list, zip(*columns.values(), strict=True))]
    lines = [*aligned(rows, _NUMBERS), "", totals_text(description.totals) + _time(description)]
    lines += [f"warning: {printable(warning)}" for warning in description.warnings]
    return "\n".join([*lines, ""])


def _columns(description: Description) -> dict[str, list[str]]:
    operators = description.operators
    columns = {
        "#": [str(operator.index) for operator in operators],
        "type": [operator.type for operator in operators],
        "name": [operator.name for operator in operators],
        "inputs -> outputs": [_flow(operator) for operator in operators],
        "shape": [output_shapes(operator, description) for operator in operators],
        "kernel": [operator.kernel or "" for operator in operators],
        "flops": [count_text(operator.flops) if operator.flops else "" for operator in operators],
        "time": [time_text(operator.time_us) if operator.time_us is not None else "" for operator in operators],
        "share": [_share(operator, description) for operator in operators],
        "parameters": [_details(operator) for operator in operators],
    }
    return {title: cells for title, cells in columns.items() if any(cells) or title == "#"}


def _flow(operator: Operator) -> str:
    return " ".join([*operator.inputs, "->", *operator.outputs])


def _share(operator: Operator, description: Description) -> str:
    share = description.share(operator)
    return "" if share is None else percent_text(share)


def _details(operator: Operator) -> str:
    """Return the expression or the parameters, and the attributes with their shapes."""
    params = {key: value for key, value in operator.params.items() if key != "expr" or operator.expression is None}
    weights = (
        f"@{key}=({','.join(map(str, value.shape or ()))}){value.dtype}" for key, value in operator.attributes.items()
    )
    return " ".join(filter(None, (operator.expression, params_text(params), *weights)))


def _time(description: Description) -> str:
    return "" if description.time_us is None else f" · {time_text(description.time_us)}"


def aligned(rows: Sequence[Sequence[str]], numbers: Collection[str] = ()) -> list[str]:
    """Return a line for each row, in aligned columns; control characters in cells are escaped.

    Args:
        rows: the first has the titles.
        numbers: titles of right-aligned columns.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    columns = [_column(column, column[0] in numbers) for column in zip(*cells, strict=True)]
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]


def _column(cells: Sequence[str], is_right: bool) -> list[str]:
    width = max(map(len, cells))
    return [cell.rjust(width) if is_right else cell.ljust(width) for cell in cells]
