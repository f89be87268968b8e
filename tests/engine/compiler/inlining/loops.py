"""Small random models with loops, scans and sequences, whose trip counts follow from shapes and constants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.engine.onnx_files.models import INT64, model, node, onnx, value

BOOL = 9


def body(name: str, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Any:
    return onnx.helper.make_graph(nodes, name, inputs, outputs)


@dataclass
class Inside:
    """Randomly drawn operators of a loop's subgraph."""

    random: np.random.Generator
    nodes: list[Any] = field(default_factory=list)
    prefix: str = "b"

    def add(self, type: str, *inputs: str, **attributes: Any) -> str:
        name = f"{self.prefix}{len(self.nodes)}"
        self.nodes.append(node(type, inputs, [name], **attributes))
        return name

    def state(self, state: str) -> str:
        """Return the next state: the matrix, changed a few times; it may gain a row."""
        for _ in range(int(self.random.integers(1, 4))):
            step = self.random.choice(["add", "scale", "iteration", "product", "choice", "loop", "row"])
            state = getattr(self, f"_{step}")(state)
        return state

    def _add(self, state: str) -> str:
        return self.add("Add", state, "x0")

    def _scale(self, state: str) -> str:
        return self.add("Tanh", self.add("Mul", state, "half"))

    def _iteration(self, state: str) -> str:
        return self.add("Sub", state, self.add("Cast", "iteration", to=1))

    def _product(self, state: str) -> str:
        return self.add("MatMul", state, "weight")

    def _row(self, state: str) -> str:
        return self.add("Concat", state, "x0", axis=0)

    def _choice(self, state: str) -> str:
        """Return another operator in the second iteration."""
        is_second = self.add("Equal", "iteration", "one")
        name = f"{self.prefix}{len(self.nodes)}"
        then = body("then", [node("Neg", [state], [f"{name}t"])], [], [value(f"{name}t", None)])
        other = body("else", [node("Abs", [state], [f"{name}e"])], [], [value(f"{name}e", None)])
        return self.add("If", is_second, then_branch=then, else_branch=other)

    def _loop(self, state: str) -> str:
        """Return a loop of two iterations that uses outer operands."""
        name = f"{self.prefix}{len(self.nodes)}"
        nodes = [node("Sub", [f"{name}s", "half"], [f"{name}r"]), node("Identity", [f"{name}c"], [f"{name}d"])]
        inputs = [value(f"{name}k", [], INT64), value(f"{name}c", [], BOOL), value(f"{name}s", None)]
        inner = body("inner", nodes, inputs, [value(f"{name}d", [], BOOL), value(f"{name}r", None)])
        return self.add("Loop", "two", "", state, body=inner)


WEIGHTS = {
    "half": np.float32(0.5),
    "one": np.array(1),
    "two": np.array(2),
    "zero": np.array(0),
    "minus": np.array(-1),
    "yes": np.array(True),
    "no": np.array(False),
    "weight": np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3),
    "axis": np.array([0]),
}


def random_loop(seed: int) -> Any:
    """Return a loop over the rows of x, [n, 3]: changing state shapes, scan outputs, and a list of all states."""
    random = np.random.default_rng(seed)
    inside = Inside(random)
    before = [node("Shape", ["x"], ["sizes"]), node("Gather", ["sizes", "zero"], ["rows"], axis=0),
              node("Slice", ["x", "axis", "ones"], ["x0"])]  # fmt: skip
    row = inside.add("Gather", "x", "iteration", axis=0)
    given = inside.add("Add", row, inside.add("ReduceSum", "state", keepdims=0))
    after = inside.state("state")
    longer = inside.add("SequenceInsert", "list", given, *(["zero"] if random.random() < 0.5 else []))
    ways = {
        "always": lambda: inside.add("Identity", "before"),
        "constant": lambda: inside.add("Identity", "yes"),
        "until": lambda: inside.add("Less", "iteration", "two"),
        "rows": lambda: inside.add("Less", inside.add("Add", "iteration", "one"), "rows"),
    }
    way = str(random.choice([*ways]))
    still = ways[way]()
    inputs = [value("iteration", [], INT64), value("before", [], BOOL), value("state", ["k", 3]), sequence("list")]
    outputs = [value(still, [], BOOL), value(after, None), sequence(longer), value(given, [3])]
    counts = ["rows", "two", "one", "zero", "minus"] + (["", ""] if way == "rows" else [])
    count = str(random.choice(counts))
    start = str(random.choice(["", "yes", "yes", "no"])) if count else "yes"
    before.append(node("SequenceEmpty", [], ["nothing"]))
    loop = node("Loop", [count, start, "x0", "nothing"], ["last", "all", "rest"], name="loop",
                body=body("body", inside.nodes, inputs, outputs))  # fmt: skip
    behind = [node("SequenceLength", ["all"], ["number"]), node("SequenceInsert", ["all", "last"], ["more"]),
              node("SequenceAt", ["more", "minus"], ["same"]), node("Neg", ["same"], ["y"])]  # fmt: skip
    weights = {**WEIGHTS, "ones": np.array([1])}
    results = [value("y", None), value("rest", None), value("number", [], INT64)]
    return model([*before, loop, *behind], [value("x", ["n", 3])], results, weights)


def random_scan(seed: int) -> Any:
    """Return a scan of x and of its other end, along any axes and in either direction."""
    random = np.random.default_rng(seed)
    inside = Inside(random)
    axis = int(random.integers(-2, 2))
    moved = inside.add("Add", "state", inside.add("ReduceMax", "a", keepdims=0))
    given = inside.add("Mul", inside.add("Add", "a", "b"), moved)
    inputs = [value("state", []), value("a", None), value("b", None)]
    both = inside.add("Identity", given)
    scan = node("Scan", ["start", "x", "x"], ["last", "all", "loop_state"], name="scan", num_scan_inputs=2,
                body=body("body", inside.nodes, inputs, [value(moved, []), value(given, None), value(both, None)]),
                scan_input_axes=[axis, axis], scan_input_directions=[int(random.integers(2)), 1],
                scan_output_axes=[0, int(random.integers(-2, 2))],
                scan_output_directions=[int(random.integers(2)), 0])  # fmt: skip
    results = [value(name, None) for name in ("last", "all", "loop_state")]
    return model([scan], [value("x", ["n", 3])], results, {"start": np.float32(0.25)})


def random_sequences(seed: int) -> Any:
    """Return a model that splits, maps, erases and joins a sequence."""
    random = np.random.default_rng(seed)
    axis, drops = int(random.integers(-2, 2)), bool(random.integers(2))
    inside = [node("Mul", ["item", "other"], ["p"]), node("Neg", ["p"], ["q"]), node("Size", ["p"], ["s"])]
    inputs = [value("item", None), value("other", None)]
    outputs = [value("q", None), value("s", [], INT64)]
    other = str(random.choice(["parts", "half"]))
    nodes = [
        node("SplitToSequence", ["x"], ["parts"], axis=axis, keepdims=int(not drops)),
        node("SequenceMap", ["parts", other], ["squares", "sizes"], name="map",
             body=body("body", inside, inputs, outputs)),
        node("SequenceErase", ["squares", "minus"], ["fewer"]),
        node("SequenceInsert", ["fewer", "first", "zero"], ["list"]),
        node("SequenceAt", ["parts", "zero"], ["first"]),
        node("ConcatFromSequence", ["list"], ["y"], axis=0, new_axis=int(drops)),
        node("ConcatFromSequence", ["sizes"], ["z"], axis=0, new_axis=1),
        node("SequenceLength", ["list"], ["number"]),
    ]  # fmt: skip
    nodes[3], nodes[4] = nodes[4], nodes[3]
    results = [value("y", None), value("z", None, INT64), value("number", [], INT64)]
    return model(nodes, [value("x", [int(random.integers(2, 5)), 3])], results, WEIGHTS)


def sequence(name: str) -> Any:
    return onnx.helper.make_tensor_sequence_value_info(name, 1, None)
