"""Bytes that are allocated at once while long expressions are evaluated, found out in a process of its own.

In one that has run other tests their threads may allocate meanwhile, and would be counted.
"""

from __future__ import annotations

import json
import tracemalloc

import numpy as np

from engine.expression import Node, evaluate, parse

SIZE = 1 << 16
BYTES = 4 * SIZE
TURNS = 60


def _balanced(depth: int) -> str:
    return "sin(@0)" if depth == 0 else f"add({_balanced(depth - 1)},{_balanced(depth - 1)})"


SHAPES = {
    "leaning left": "add(" * TURNS + "sin(@0)" + ",cos(@0))" * TURNS,
    "leaning right": "add(sin(@0)," * TURNS + "cos(@0)" + ")" * TURNS,
    "leaning by turns": "add(sin(@0),add(" * TURNS + "cos(@0)" + ",tanh(@0)))" * TURNS,
    "one after the other": "sin(" * TURNS + "@0" + ")" * TURNS,
    "of one operand": "mul(@0," * TURNS + "@0" + ")" * TURNS,
    "balanced": _balanced(6),
    "widths of sums": "[" + ",".join(["size(add(sin(@0),cos(@0)),0)"] * TURNS) + "]",
}


def peak_of(tree: Node, operands: list[object]) -> int:
    """Bytes that are allocated at once, what is made once for all evaluations left out."""
    evaluate(tree, operands)
    tracemalloc.start()
    try:
        evaluate(tree, operands)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


if __name__ == "__main__":
    x = np.linspace(0, 1, SIZE, dtype=np.float32)
    print(json.dumps({shape: peak_of(parse(text), [x]) for shape, text in SHAPES.items()}))
