"""LLVM: ir writes its text, object_code makes machine code of that and loads it, host says for what.

host has the figures that models of cost count with: lanes, registers, caches, what a byte costs.
peak measures what a core can do.
"""
