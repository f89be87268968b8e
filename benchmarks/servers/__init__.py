"""The same models behind other servers; see benchmarks/README.md."""
