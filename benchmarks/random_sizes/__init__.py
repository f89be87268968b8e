"""Networks with dynamic sizes, a new input size with every request: ours against rivals on the same file."""
