"""Programs whose sizes are symbolic: compiled once, bound to the sizes of every input."""
