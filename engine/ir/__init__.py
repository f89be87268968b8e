"""Values shared by the graph and the compiler: symbolic sizes, and meta tensors whose sizes may be symbolic."""
