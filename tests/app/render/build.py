"""Handmade descriptions in the form of ``graph.describe()``."""

from __future__ import annotations

from typing import Any

# Each tries to end the place it is written in, or to be taken for markup there.
HOSTILE_TEXTS = (
    '"><script>alert(1)</script>',
    "]]></title><svg onload='x()'>",
    "</style>&amp;&#x0;",
    '"]; evil [shape=box',
    '\\"; n9 -> n8; "',
    'a"] --> b["`**bold**`',
    "%%{init: {}}%%",
    "#quot;#35;",
    "\x00\x1b[31m\x7f\x9b",
    "\ud800half\udfff",
    "\u202egnp.exe\u2066",
    "\ufffe\uffff",
    "\\N\\G\\l",
    "{{3}}|pipe|;click n0 href",
    "模型" * 60,
)


class Sketch:
    """Graph under construction; ``operator`` returns the names of the operands it makes."""

    def __init__(self, name: str = "sketch") -> None:
        self.name = name
        self.operators: list[dict[str, Any]] = []
        self.operands: dict[str, dict[str, Any]] = {}

    def operator(self, type: str, *inputs: str, name: str = "", outputs: int = 1, **keys: Any) -> tuple[str, ...]:
        """Append an operator; shape and dtype are those of its outputs, other keys go into its entry."""
        index = len(self.operators)
        name = name or f"op{index}"
        made = tuple(str(len(self.operands) + i) for i in range(outputs))
        about = {"shape": keys.pop("shape", [1, 4, 8, 8]), "dtype": keys.pop("dtype", "float32")}
        self.operands |= {operand: {"producer": name, "consumers": [], **about} for operand in made}
        for operand in inputs:
            self.operands[operand]["consumers"].append(name)
        entry = {"index": index, "name": name, "type": type, "inputs": list(inputs), "outputs": list(made)}
        self.operators.append({"params": {}, "attributes": {}, **entry, **keys})
        return made

    def describe(self, **keys: Any) -> dict[str, Any]:
        """Return the finished description."""
        description = {"name": self.name, "operators": self.operators, "operands": self.operands, "warnings": []}
        return {**description, "totals": {"operators": len(self.operators)}, **keys}


def residual() -> dict[str, Any]:
    """Return eight operators: a convolution, a constant added to it, a skip around an activation."""
    sketch = Sketch("residual")
    (x,) = sketch.operator("pnnx.Input", name="in0", shape=[1, 3, 16, 16])
    (y,) = sketch.operator(
        "nn.Conv2d",
        x,
        name="conv",
        params={
            "in_channels": 3, "out_channels": 4, "kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1],
            "dilation": [1, 1], "groups": 1, "bias": True, "padding_mode": "zeros",
        },
        attributes={"weight": {"shape": [4, 3, 3, 3], "dtype": "float32", "bytes": 432}},
        kernel="reference",
        flops=13824,
    )  # fmt: skip
    (c,) = sketch.operator("pnnx.Attribute", name="offset", shape=[4, 1, 1])
    (z,) = sketch.operator("F.relu", y, name="relu", kernel="reference")
    (s,) = sketch.operator("pnnx.Expression", y, c, z, name="sum", expression="(@0 + @1) * @2", params={"expr": "raw"})
    a, b = sketch.operator("torch.chunk", s, name="halves", outputs=2, shape=[1, 2, 8, 8], params={"dim": 1})
    (t,) = sketch.operator("prim::TupleConstruct", a, b, name="pair", shape=None, dtype=None)
    sketch.operator("pnnx.Output", t, name="out0", outputs=0)
    return sketch.describe(totals={"operators": 8, "parameters": 112, "bytes": 448, "flops": 13824})


def profiled() -> dict[str, Any]:
    """Return the residual graph with times 100, 200, ... µs in execution order."""
    description = residual()
    for operator in description["operators"][1:-1]:
        operator["time_us"] = 100.0 * operator["index"]
    return description


def hostile() -> dict[str, Any]:
    """Return a graph in which every text is an injection attempt."""
    sketch = Sketch(HOSTILE_TEXTS[0])
    (x,) = sketch.operator("pnnx.Input", name=HOSTILE_TEXTS[1])
    for text in HOSTILE_TEXTS:
        (x,) = sketch.operator(
            text,
            x,
            name=f"name{text}",
            params={text: text, "list": [text, 1]},
            attributes={text: {"shape": [1], "dtype": text, "bytes": 4}},
            expression=text,
            kernel=text,
            dtype=text,
        )
    sketch.operator("pnnx.Output", x, name=HOSTILE_TEXTS[2], outputs=0)
    renamed = {name: f"{name}{HOSTILE_TEXTS[0]}" for name in sketch.operands}
    for operator in sketch.operators:
        operator["inputs"] = [renamed[name] for name in operator["inputs"]]
        operator["outputs"] = [renamed[name] for name in operator["outputs"]]
    operands = {renamed[name]: entry for name, entry in sketch.operands.items()}
    return sketch.describe(operands=operands, warnings=list(HOSTILE_TEXTS), backend=HOSTILE_TEXTS[0])
