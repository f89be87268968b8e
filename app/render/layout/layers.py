"""The layer of every node: below everything it depends on, and no further from what it feeds than it must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Net:
    """One value: nodes are numbers, targets are distinct, not empty and greater than the source."""

    source: int
    targets: tuple[int, ...]


def assign_layers(count: int, nets: Sequence[Net], roots: frozenset[int]) -> list[int]:
    """Layers 0, 1, ... for nodes 0..count-1, every source above its targets.

    Args:
        nets: every target stands behind its source in the numbering: nodes are numbered in an order of execution.
        roots: nodes that belong on top. What does not depend on them, constants mostly, is drawn where it is used.
    """
    layers = _longest_paths(count, nets)
    _pull_down(layers, nets, _floating(count, nets, roots))
    return _without_gaps(layers)


def _longest_paths(count: int, nets: Sequence[Net]) -> list[int]:
    layers = [0] * count
    for net in sorted(nets, key=lambda net: net.source):
        for target in net.targets:
            layers[target] = max(layers[target], layers[net.source] + 1)
    return layers


def _floating(count: int, nets: Sequence[Net], roots: frozenset[int]) -> set[int]:
    """Nodes better drawn low: more lines leave than enter them, or nothing they depend on is a root."""
    rooted = [node in roots for node in range(count)]
    surplus = [0] * count
    for net in sorted(nets, key=lambda net: net.source):
        surplus[net.source] += 1
        for target in net.targets:
            rooted[target] |= rooted[net.source]
            surplus[target] -= 1
    return {node for node in range(count) if node not in roots and (surplus[node] > 0 or not rooted[node])}


def _pull_down(layers: list[int], nets: Sequence[Net], floating: set[int]) -> None:
    last_first = sorted(nets, key=lambda net: net.source, reverse=True)
    for source, group in groupby(last_first, key=lambda net: net.source):
        if source in floating:
            layers[source] = min(layers[target] for net in group for target in net.targets) - 1


def _without_gaps(layers: list[int]) -> list[int]:
    used = {layer: rank for rank, layer in enumerate(sorted(set(layers)))}
    return [used[layer] for layer in layers]
