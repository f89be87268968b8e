"""Does a server stay right, and as small as it was, while everything happens to it; see benchmarks/README.md."""
