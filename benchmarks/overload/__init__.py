"""Effect of a client that attacks the server on its other clients; see benchmarks/README.md."""
