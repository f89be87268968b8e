"""Families of operator types, with their colours.

The last word of a type decides, not its module (``nn.``, ``F.``, ``torch.``, ``aten::``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

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


def family_of(operator_type: str) -> str:
    """Return the family of an operator type; ``other`` if unknown, such as a user's own."""
    word = operator_type.replace("_", "").lower()
    return next((family for family, pattern in _PATTERNS if pattern.fullmatch(word)), "other")
