"""LLVM: the text of its IR, its targets, its code generator, and what the processor can do."""
