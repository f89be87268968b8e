"""Changes of an ONNX model that leave it a message, mostly: what each does, some protocol or exporter might say."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from tests.engine.onnx_files.models import node, onnx, value

NUMBERS: Final = (0, 1, 2, 3, 7, 40_000, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, -1, -2, -(2**31), -(2**63))
REALS: Final = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, float("nan"), float("inf"), float("-inf"))
# "link" leads out of the folder, "pipe" is one, "holes" is a file of a terabyte of nothing.
PLACES: Final = (
    "weights.bin", "model.onnx", "", ".", "..", "../weights.bin", "/etc/passwd", "/dev/zero", "link", "pipe", "holes",
    "below/../weights.bin", "below\\..\\..\\x", "a\0b", "missing", "w" * 5000, "below",
)  # fmt: skip
COUNTS: Final = (1, 3, 40, 3000)
DEPTHS: Final = (1, 3, 20, 70, 300)

Change = Callable[[Any, random.Random], None]


def renumber(proto: Any, dice: random.Random) -> None:
    """Another number in an attribute."""
    attribute = _one(dice, [each for op in _nodes(proto.graph) for each in op.attribute])
    if attribute is None:
        return
    if attribute.type == onnx.AttributeProto.INT:
        attribute.i = dice.choice(NUMBERS)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = dice.choice(REALS)
    elif attribute.ints:
        attribute.ints[dice.randrange(len(attribute.ints))] = dice.choice(NUMBERS)
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = dice.choice((b"", b"\xff\0", b"x" * 100_000, attribute.s.upper(), b"linear", b"reflect"))
    else:
        attribute.type = dice.randrange(15)


def lose(proto: Any, dice: random.Random) -> None:
    """An attribute, input, output, node, tensor or value less; or an attribute twice."""
    op = _one(dice, list(_nodes(proto.graph)))
    holders = [proto.graph.node, proto.graph.initializer, proto.graph.input, proto.graph.output, proto.functions]
    if op is not None:
        holders += [op.attribute, op.attribute, op.input, op.output]
    items = dice.choice(holders)
    if len(items):
        at = dice.randrange(len(items))
        if dice.random() < 0.2:
            items.append(items[at])
        else:
            del items[at]


def rewire(proto: Any, dice: random.Random) -> None:
    """Change an input or output of any graph of the file: cycles, values defined twice, undefined values."""
    nodes = list(_nodes(proto.graph))
    op = _one(dice, nodes)
    names = [name for each in nodes for name in (*each.input, *each.output)] + ["", "undefined"]
    if op is not None:
        side = op.input if dice.random() < 0.7 else op.output
        if len(side):
            side[dice.randrange(len(side))] = dice.choice(names)
        else:
            side.append(dice.choice(names))


def retype(proto: Any, dice: random.Random) -> None:
    """Another operator, domain or version."""
    op = _one(dice, list(_nodes(proto.graph)))
    kind = dice.randrange(4)
    if kind == 0 and len(proto.opset_import):
        dice.choice(proto.opset_import).version = dice.choice((1, 5, 7, 9, 11, 13, 18, 24, *NUMBERS))
    elif op is not None:
        op.op_type = dice.choice(_types())
        if kind == 1:
            op.domain = dice.choice(("", "ai.onnx", "com.microsoft", "ai.onnx.ml", "own", "ai.onnx.preview"))


def resize(proto: Any, dice: random.Random) -> None:
    """Another declared size, name of one, rank or element type: of an input, output or value in between."""
    port = _one(dice, [*proto.graph.input, *proto.graph.input, *proto.graph.output, *proto.graph.value_info])
    if port is None:
        return
    tensor = port.type.tensor_type
    kind = dice.randrange(5)
    if kind == 0:
        tensor.elem_type = dice.randrange(28)
    elif kind == 1:
        tensor.shape.dim.add().dim_value = dice.choice(NUMBERS)
    elif kind == 2 and len(tensor.shape.dim):
        dice.choice(tensor.shape.dim).dim_param = dice.choice(("batch", "n", "", "a" * 100_000, "\u202e<b>", "n + 1"))
    elif kind == 3:
        port.type.Clear()
    elif len(tensor.shape.dim):
        dice.choice(tensor.shape.dim).dim_value = dice.choice(NUMBERS)


def lie(proto: Any, dice: random.Random) -> None:
    """A tensor that says something else of itself."""
    tensor = _one(dice, list(_tensors(proto.graph)))
    if tensor is None:
        return
    kind = dice.randrange(7)
    if kind == 0:
        tensor.data_type = dice.randrange(30)
    elif kind == 1 and len(tensor.dims):
        tensor.dims[dice.randrange(len(tensor.dims))] = dice.choice(NUMBERS)
    elif kind == 2:
        tensor.dims.extend([dice.choice((0, 1, 1, 2**33))] * dice.choice((1, 2, 70)))
    elif kind == 3:
        tensor.raw_data = dice.randbytes(dice.choice((0, 1, 4, len(tensor.raw_data), 5000)))
    elif kind == 4:
        tensor.int32_data.extend([dice.choice((0, 1, -1, 2**31 - 1))] * dice.choice(COUNTS))
    elif kind == 5:
        tensor.string_data.extend([b"\xff" * dice.choice((0, 3, 100_000))] * dice.choice(COUNTS[:3]))
    else:
        tensor.float_data.extend([dice.choice(REALS)] * dice.choice(COUNTS))


def reweigh(proto: Any, dice: random.Random) -> None:
    """Other elements in a tensor: those that sizes, axes and places come from, too."""
    tensor = _one(dice, list(_tensors(proto.graph)))
    try:
        array = np.array(onnx.numpy_helper.to_array(tensor))
    except Exception:  # what was changed before
        return
    if array.dtype.kind not in "iuf" or not array.size:
        return
    flat = array.reshape(-1)
    with np.errstate(all="ignore"):
        chosen = np.array([dice.choice(REALS if array.dtype.kind == "f" else NUMBERS) for _ in range(2)])
        flat[dice.randrange(flat.size)] = chosen.astype(array.dtype)[0]
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


def outside(proto: Any, dice: random.Random) -> None:
    """The elements of a tensor somewhere else."""
    tensor = _one(dice, list(_tensors(proto.graph)))
    if tensor is None:
        return
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    words = {"location": dice.choice(PLACES), "offset": str(dice.choice(NUMBERS)), "length": str(dice.choice(NUMBERS))}
    if dice.random() < 0.5:
        words["offset"] = dice.choice(("0", "1", "4096", "٣", "1e3", "9" * 5000, ""))
    for key in dice.sample(list(words), dice.choice((1, 2, 3))):
        tensor.external_data.add(key=key, value=words[key])


def nest(proto: Any, dice: random.Random) -> None:
    """The whole graph in a branch of an If, that in another one's, ..."""
    for _ in range(dice.choice(DEPTHS)):
        body = onnx.GraphProto(name="body", node=proto.graph.node, output=proto.graph.output)
        names = [each.name for each in body.output]
        condition = node("Constant", [], ["always"], value=onnx.numpy_helper.from_array(np.array([True])))
        if dice.random() < 0.3:
            condition = node("IsNaN", ["perhaps"], ["always"])
        branches = {"then_branch": body} | ({"else_branch": body} if dice.random() < 0.1 else {})
        try:
            outer = node("If", ["always"], names, **branches)
        except Exception:  # deeper than the package copies
            break
        if proto.ByteSize() > 1 << 20:
            break
        del proto.graph.node[:]
        proto.graph.node.extend([condition, outer])
    proto.graph.input.append(value("perhaps", [1]))


def multiply(proto: Any, dice: random.Random) -> None:
    """Functions that call each other: in a circle, or each the next one twice, so that few become very many."""
    depth, calls = dice.choice((1, 5, 25, 40)), dice.choice((1, 2, 2, 3))
    imports = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("bomb", 1)]
    for k in range(depth):
        next_one = f"f{(k + 1) % depth if dice.random() < 0.05 else k + 1}"
        values = ["a", *(f"a{i}" for i in range(1, calls)), "z"]
        body = [node(next_one, [values[i]], [values[i + 1]], domain="bomb") for i in range(calls)]
        proto.functions.append(onnx.helper.make_function("bomb", f"f{k}", ["a"], ["z"], body, imports))
    last = [node("Relu", ["a"], ["z"])]
    proto.functions.append(onnx.helper.make_function("bomb", f"f{depth}", ["a"], ["z"], last, imports))
    proto.opset_import.append(imports[1])
    if len(proto.graph.output) and len(proto.graph.input):
        proto.graph.node.append(node("f0", [proto.graph.input[0].name], ["burst"], domain="bomb"))
        proto.graph.output[0].name = "burst"


def repeat(proto: Any, dice: random.Random) -> None:
    """Very many nodes, values, tensors, imports, or very long names."""
    count, kind = dice.choice((100, 3000, 30_000)), dice.randrange(6)
    if kind == 0:
        proto.graph.node.extend([node("Relu", ["x"], [""])] * count)
    elif kind == 1:
        start = proto.graph.input[0].name if len(proto.graph.input) else "x"
        names = [start, *(f"chain{k}" for k in range(min(count, 3000)))]
        proto.graph.node.extend([node("Neg", [a], [b]) for a, b in zip(names, names[1:], strict=False)])
        proto.graph.output.append(value(names[-1], None))
    elif kind == 2:
        proto.graph.value_info.extend([value("v" * 50, [1] * 40)] * count)
    elif kind == 3:
        proto.opset_import.extend([onnx.helper.make_opsetid(dice.choice(("", "x" * 50)), 21)] * count)
    elif kind == 4 and len(proto.graph.node):
        dice.choice(proto.graph.node).name = "n\n\u202e\0" * count
        proto.doc_string = "d" * count
    elif kind == 5 and len(proto.graph.node):
        op = dice.choice(proto.graph.node)
        op.input.extend([op.input[0] if len(op.input) else ""] * count)


CHANGES: Final[tuple[Change, ...]] = (
    renumber, renumber, renumber, lose, rewire, retype, resize, resize, lie, lie, reweigh, reweigh, outside,
)  # fmt: skip
BOMBS: Final[tuple[Change, ...]] = (nest, multiply, repeat)


def mangled(content: bytes, dice: random.Random) -> bytes:
    """Bytes that are others, gone, there twice or cut off, anywhere."""
    data = bytearray(content)
    for _ in range(dice.choice((1, 1, 2, 4))):
        place = dice.randrange(len(data) + 1)
        kind = dice.randrange(6)
        if kind == 0:
            data[place : place + 1] = dice.randbytes(1)
        elif kind == 1:
            del data[place : place + dice.randrange(1, 40)]
        elif kind == 2:
            data[place:place] = dice.randbytes(dice.randrange(1, 9))
        elif kind == 3:  # a length, or number of a field, that is very large
            data[place : place + 1] = b"\xff" * dice.randrange(1, 10) + b"\x01"
        elif kind == 4:
            data[place:place] = data[place : place + dice.choice((10, 1000))] * dice.choice((1, 50))
        elif dice.random() < 0.3:
            del data[place:]
    return bytes(data)


def _one(dice: random.Random, items: list[Any]) -> Any:
    return dice.choice(items) if items else None


def _nodes(graph: Any) -> Iterator[Any]:
    """Of a graph and of all its bodies."""
    for op in graph.node:
        yield op
        for attribute in op.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for each in graph.sparse_initializer:
        yield from (each.values, each.indices)
    for op in _nodes(graph):
        for attribute in op.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("g"):
                yield from attribute.g.initializer


def _types() -> list[str]:
    return sorted({schema.name for schema in onnx.defs.get_all_schemas()} | {"Attention", "FusedMatMul", "QLinearAdd"})
