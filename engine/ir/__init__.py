"""Values that the graph and the compiler share: symbolic sizes, and meta tensors whose sizes they may be."""
