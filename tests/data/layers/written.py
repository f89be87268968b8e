"""Files written by hand, for operators the converter does not (or no longer) emit.

    written({"x": X, "y": Y}, "aten::add x y 1 -> sum", "torch.abs sum -> out", "torch.cumsum x -> running dim=0")

Operands that name nothing are constants and become zero-input expressions, as at optimisation level 1. What no
operator takes is an output, in the order made.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import torch

CODES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int8: "i8",
    torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8", torch.bool: "bool",
    torch.complex64: "c64", torch.complex128: "c128",
}  # fmt: skip


def written(inputs: Mapping[str, torch.Tensor], *operators: str) -> str:
    """The text of a file with these operators, each ``type operands -> results key=value ...``."""
    lines = [
        f"pnnx.Input pnnx_input_{index} 0 1 {name} #{name}=({','.join(map(str, tensor.shape))}){CODES[tensor.dtype]}"
        for index, (name, tensor) in enumerate(inputs.items())
    ]
    made, used, serial = list(inputs), set(), count()
    for operator in operators:
        left, _, right = operator.partition(" -> ")
        type, *operands = left.split()
        results = [item for item in right.split() if "=" not in item]
        for index, operand in enumerate(operands):
            if operand not in made:
                operands[index] = f"constant{next(serial)}"
                made.append(operands[index])
                lines.append(f"pnnx.Expression {operands[index]} 0 1 {operands[index]} expr={operand}")
        used.update(operands)
        made.extend(results)
        entries = [item for item in right.split() if "=" in item]
        counts = [str(len(operands)), str(len(results))]
        lines.append(" ".join([type, f"op{next(serial)}", *counts, *operands, *results, *entries]))
    unused = [name for name in made if name not in used and name not in inputs]
    lines.append(f"prim::TupleConstruct tuple {len(unused)} 1 {' '.join(unused)} tuple")
    lines.append("pnnx.Output pnnx_output_0 1 0 tuple")
    return f"7767517\n{len(lines)} {len(made) + 1}\n" + "\n".join(lines) + "\n"
