"""What a pass did to a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from engine import pnnx

ACTIVATIONS: Final = "activation_into_producer"
RESIDUALS: Final = "residual_into_producer"
JOINS: Final = "join_in_place"
ATTENTION: Final = "attention_in_one"
WAVEFRONT: Final = "layers_side_by_side"
LOWERING_PASSES: Final = (ACTIVATIONS, RESIDUALS, JOINS, ATTENTION, WAVEFRONT)
"""What the compiler does while it lowers a graph, reported and left out like a pass: element-wise operators become part
of the kernel that makes their operand, alone or together with another tensor; parts of a concatenation are computed in
their place; products, masks and softmax that spell out attention become one kernel; recurrent layers that follow each
other are computed some steps behind one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassReport:
    """What one pass did, over all its rounds.

    Args:
        name: the pass.
        removed, added: how many operators it took out and put in.
        changed: names of the operators it took out, put in or rewrote; those that only got another operand do not
            count.
        time_ms: how long it took, building the changed graph included.
    """

    name: str
    removed: int = 0
    added: int = 0
    changed: tuple[str, ...] = ()
    time_ms: float = 0.0

    def describe(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "changed": list(self.changed)}


def compare(name: str, before: pnnx.Graph, after: pnnx.Graph, time_ms: float) -> PassReport:
    """The report of one run of a pass."""
    old, new = ({op.name: op for op in graph.operators} for graph in (before, after))
    rewritten = [key for key, op in new.items() if key in old and _differs(old[key], op)]
    removed, added = [key for key in old if key not in new], [key for key in new if key not in old]
    changed = tuple(dict.fromkeys([*removed, *added, *rewritten]))
    return PassReport(name=name, removed=len(removed), added=len(added), changed=changed, time_ms=time_ms)


def total(name: str, reports: Sequence[PassReport]) -> PassReport:
    """Several reports of one pass as one."""
    return PassReport(
        name=name,
        removed=sum(report.removed for report in reports),
        added=sum(report.added for report in reports),
        changed=tuple(dict.fromkeys(key for report in reports for key in report.changed)),
        time_ms=sum(report.time_ms for report in reports),
    )


def _differs(old: pnnx.Operator, new: pnnx.Operator) -> bool:
    same = old.type == new.type and old.params is new.params and old.attributes is new.attributes
    return not same or len(old.inputs) != len(new.inputs)
