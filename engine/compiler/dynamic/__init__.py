"""Programs with symbolic sizes: compiled once, bound to the sizes of every input."""
