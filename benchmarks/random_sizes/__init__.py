"""Networks with open sizes, given an input of another size with every request: ours against rivals on the same file."""
