"""Captions of operators: the parameters that matter, the output shapes, and the family with its colour.

``3×3, 64→128, stride 2`` is clearer than nine parameters of which seven are defaults.

The last word of a type decides its family, not its module (``nn.``, ``F.``, ``torch.``, ``aten::``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from app.render.description import Description, Operator
from app.render.formatting import shape_text, value_text

# First match wins. Types are compared in lower case without underscores, so ``nn.Conv2d`` equals ``F.conv2d``.
_RULES: Final = (
    ("io", r"pnnx\.(input|output)"),
    ("constant", r"pnnx\.attribute|prim::constant"),
    ("expression", r"pnnx\.expression"),
    ("attention", r".*attention"),
    ("recurrent", r".*\.(lstm|gru|rnn)(cell)?"),
    ("conv", r".*conv(transpose)?\dd|.*conv"),
    ("pool", r".*pool\dd|.*unpool\dd"),
    ("reduce", r"(torch\.|aten::)(linalg)?norm"),
    ("norm", r".*norm(\dd)?|.*\.normalize"),
    ("linear", r".*[.:](linear|bilinear|matmul|mm|bmm|mv|addmm|addmv|baddbmm|einsum|dot|inner|outer|tensordot|kron)"),
    ("linear", r".*[.:]embedding(bag)?"),
    (
        "activation",
        r".*[.:](relu6?|leakyrelu|prelu|rrelu|elu|selu|celu|gelu|silu|mish|glu|sigmoid|logsigmoid|hardsigmoid"
        r"|hardswish|tanh|hardtanh|tanhshrink|hardshrink|softshrink|softplus|softsign|threshold"
        r"|softmax(2d)?|logsoftmax|softmin|(alpha|featurealpha)?dropout(\dd)?)",
    ),
    (
        "shape",
        r"prim::.*|pnnx\.sliceindexes|tensor\.(reshape|view|permute|expand|expandas|repeat|slice|slicecopy|select|index"
        r"|indexput|unflatten|unfold|tounfold|clone|to|typeas|size)|torch\.(flatten|transpose|permute|squeeze|unsqueeze|cat"
        r"|stack|split|tensorsplit|chunk|unbind|narrow|roll|flip|t|clone|gather|indexselect|slicescatter|scatteradd|tile"
        r"|repeatinterleave|asstrided|diag|movedim|viewasreal|viewascomplex|select|unsqueeze)"
        r"|f\.(pad|fold|unfold|pixelshuffle|pixelunshuffle|channelshuffle|upsample.*|interpolate|gridsample)"
        r"|nn\.(.*pad\dd|fold|unfold|flatten|unflatten|pixelshuffle|pixelunshuffle|channelshuffle|upsampl.*|identity)",
    ),
    (
        "reduce",
        r".*[.:](sum|mean|prod|amax|amin|max|min|argmax|argmin|logsumexp|topk|sort|argsort|std|var|cumsum|cumprod"
        r"|pairwisedistance|all|any|median)",
    ),
    (
        "expression",
        r".*[.:](eq|ne|lt|le|gt|ge|logical.*|bitwise.*|where|clamp(min|max)?|maskedfill|fill|lgamma|positive|complex"
        r"|real|imag|cross|add|sub|mul|div|neg|exp|log\w*|sqrt|rsqrt|pow|abs|sin|cos|floor|ceil|round|sign|erf)",
    ),
)  # fmt: skip
_PATTERNS: Final = tuple((family, re.compile(pattern)) for family, pattern in _RULES)

# In the order of the legend.
FAMILIES: Final = (
    "io", "conv", "linear", "attention", "recurrent", "pool", "norm", "activation", "shape", "reduce", "expression",
    "constant", "other",
)  # fmt: skip
# White text on any of them has a contrast of at least 4.5 to 1 (WCAG 2.2, level AA).
COLOURS: Final[Mapping[str, str]] = {
    "io": "#475569",
    "conv": "#2563eb",
    "linear": "#4f46e5",
    "attention": "#a21caf",
    "recurrent": "#be185d",
    "pool": "#0f766e",
    "norm": "#4d7c0f",
    "activation": "#b45309",
    "shape": "#64748b",
    "reduce": "#0e7490",
    "expression": "#7c3aed",
    "constant": "#78716c",
    "other": "#b91c1c",
}
TEXT: Final = "#ffffff"
# PyTorch's defaults, which captions omit.
_DEFAULTS: Final[Mapping[str, tuple[Any, ...]]] = {
    "stride": (1,),
    "padding": (0, "valid"),
    "output_padding": (0,),
    "dilation": (1,),
    "padding_mode": ("zeros",),
}
# The end of an axis in PNNX files.
_END: Final = 2147483647


def family_of(operator_type: str) -> str:
    """Return the family of an operator type; ``other`` if unknown, such as a user's own."""
    word = operator_type.replace("_", "").lower()
    return next((family for family, pattern in _PATTERNS if pattern.fullmatch(word)), "other")


def key_params(operator: Operator) -> str:
    """Return the parameters that distinguish the operator from others of its type, or an empty text."""
    if operator.expression is not None and operator.type == "pnnx.Expression":
        return operator.expression
    words = _BY_FAMILY.get(family_of(operator.type), _plain)
    return ", ".join(words(operator.params))


def output_shapes(operator: Operator, description: Description) -> str:
    """Return ``1×64×56×56``, several outputs separated by commas, or an empty text if unknown."""
    known = [description.operands[name] for name in operator.outputs if name in description.operands]
    shapes = [operand.shape_text for operand in known]
    if len(set(shapes)) == 1 and len(shapes) > 2:
        return f"{len(shapes)} × ({shapes[0]})" if shapes[0] else ""
    return ", ".join(filter(None, shapes))


def tooltip(operator: Operator, description: Description) -> list[str]:
    """Return everything known of an operator as lines."""
    lines = [f"{operator.index}: {operator.name} ({operator.type})"]
    lines += [f"= {operator.expression}"] if operator.expression is not None else []
    lines += [f"{key} = {value_text(value)}" for key, value in operator.params.items() if key != "expr"]
    lines += [f"@{key} {shape_text(value.shape)} {value.dtype}" for key, value in operator.attributes.items()]
    lines += [f"in  {operand_text(name, description)}" for name in operator.inputs]
    lines += [f"out {operand_text(name, description)}" for name in operator.outputs]
    lines += [f"kernel: {operator.kernel}"] if operator.kernel else []
    lines += [f"{operator.flops:,} FLOP"] if operator.flops else []
    return lines


def operand_text(name: str, description: Description) -> str:
    """Return ``13: 1×64×56×56 float32``, as far as known."""
    operand = description.operands.get(name)
    if operand is None:
        return name
    return " ".join(filter(None, (f"{name}:", operand.shape_text, operand.dtype)))


def _conv(params: Mapping[str, Any]) -> Iterator[str]:
    yield from _window(params)
    yield from _change(params, "in_channels", "out_channels")
    groups = params.get("groups", 1)
    if groups != 1:
        yield "depthwise" if groups == params.get("in_channels") else f"groups {groups}"
    yield from _unusual(params, "stride", "padding", "output_padding", "dilation", "padding_mode")


def _linear(params: Mapping[str, Any]) -> Iterator[str]:
    yield from _change(params, "in_features", "out_features")
    yield from _change(params, "num_embeddings", "embedding_dim", "×")
    if "equation" in params:
        yield value_text(params["equation"])


def _pool(params: Mapping[str, Any]) -> Iterator[str]:
    yield from _window(params)
    if "output_size" in params:
        yield f"to {_dims(params['output_size'])}"
    yield from _unusual(params, "stride", "padding", "dilation")


def _norm(params: Mapping[str, Any]) -> Iterator[str]:
    for key in ("num_features", "normalized_shape", "num_channels", "size"):
        if key in params:
            yield _dims(params[key])
    if "num_groups" in params:
        yield f"{params['num_groups']} groups"
    yield from _some(params, "p", "dim")


def _attention(params: Mapping[str, Any]) -> Iterator[str]:
    yield from _some(params, "embed_dim")
    if "num_heads" in params:
        yield f"{params['num_heads']} heads"
    yield from (key.removeprefix("is_") for key in ("is_causal", "enable_gqa") if params.get(key) is True)


def _recurrent(params: Mapping[str, Any]) -> Iterator[str]:
    yield from _change(params, "input_size", "hidden_size")
    if params.get("num_layers", 1) != 1:
        yield f"{params['num_layers']} layers"
    if params.get("bidirectional") is True:
        yield "bidirectional"


def _plain(params: Mapping[str, Any]) -> Iterator[str]:
    for key, value in params.items():
        if value is not None and key != "expr":
            yield f"{key} {_ends(value)}"


def _window(params: Mapping[str, Any]) -> Iterator[str]:
    if "kernel_size" in params:
        size = _dims(params["kernel_size"])
        yield size if "×" in size else f"window {size}"


def _change(params: Mapping[str, Any], before: str, after: str, sign: str = "→") -> Iterator[str]:
    if before in params and after in params:
        yield f"{params[before]}{sign}{params[after]}"


def _unusual(params: Mapping[str, Any], *keys: str) -> Iterator[str]:
    for key in keys:
        value = params.get(key)
        if value is not None and not all(item in _DEFAULTS[key] for item in _listed(value)):
            yield f"{key.replace('_', ' ')} {_uniform(value)}"


def _some(params: Mapping[str, Any], *keys: str) -> Iterator[str]:
    yield from (f"{key.replace('_', ' ')} {value_text(params[key])}" for key in keys if params.get(key) is not None)


def _dims(value: Any) -> str:
    return "×".join(value_text(item) for item in _listed(value))


def _uniform(value: Any) -> str:
    """Return ``2`` for (2, 2), ``2×1`` if the axes differ."""
    return _dims(value if len(set(_listed(value))) > 1 else _listed(value)[0])


def _ends(value: Any) -> str:
    return ",".join("end" if item == _END else value_text(item) for item in _listed(value))


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


_BY_FAMILY: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]]] = {
    "conv": _conv,
    "linear": _linear,
    "pool": _pool,
    "norm": _norm,
    "attention": _attention,
    "recurrent": _recurrent,
}
