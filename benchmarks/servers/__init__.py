"""Other servers with the same models; see benchmarks/README.md."""
