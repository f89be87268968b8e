"""Lowering: from operators to kernel steps.

layout decides where results lie in memory, and which zeros their readers need around them. Then walk calls the lowering
rule of every layer (rules) with a context. fusion adds the element-wise operators (terms) that follow to a kernel.
"""

from importlib import import_module
from pkgutil import walk_packages

from engine.compiler.lowering import rules, terms
from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.walk import lower

# Importing these modules registers their rules.
for _package in (rules, terms):
    for _module in walk_packages(_package.__path__, f"{_package.__name__}."):
        import_module(_module.name)

__all__ = ["Lowering", "lower"]
