"""Inner functions that kernels of a program have in common: written into the object of the first, called by the others.

Layers of one shape differ in what is done to their results, and all else of them is the same text: LLVM is given it
once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from engine.compiler.codegen.ir import Module


class Shared:
    """The inner functions of a program so far, by the hash of what they say."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def text(self, module: Module) -> str:
        """A module, with inner functions declared that another one has, and named by what they say.

        Its object needs those of the modules before it.
        """
        names: dict[str, str] = {}
        own: set[str] = set()
        texts = []
        declarations = dict(module.declarations)
        written = {name: str(function) for name, function in module.functions.items()}
        for name in _callees_first(written):
            function = module.functions[name]
            text = _renamed(written[name], names)
            if function.is_inner:
                text = text.replace(f"define {function.linkage}", "define ", 1).replace(f" @{name}(", " @(")
                names[name] = shared = f"inner_{hashlib.sha1(text.encode()).hexdigest()[:20]}"
                if shared in own:  # the module says the same twice
                    continue
                if shared in self._names:
                    types = ", ".join(each.type for each in function.given)
                    declarations[shared] = f"declare {function.result} @{shared}({types})"
                    continue
                own.add(shared)
                text = text.replace(" @(", f" @{shared}(")
            texts.append(text)
        self._names |= own
        return "\n".join([*declarations.values(), *texts, ""])


def _callees_first(texts: Mapping[str, str]) -> list[str]:
    """Names of functions, each after those it calls: some are begun before what they call is written."""
    order: dict[str, None] = {}

    def visit(name: str) -> None:
        for other in texts:
            if other not in order and other != name and f" @{other}(" in texts[name]:
                visit(other)
        order[name] = None

    for name in texts:
        if name not in order:
            visit(name)
    return list(order)


def _renamed(text: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(f" @{old}(", f" @{new}(")
    return text
