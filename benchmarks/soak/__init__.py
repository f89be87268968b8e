"""Soak test: does a server stay right and small while everything happens to it? See benchmarks/README.md."""
