"""What a server's other clients notice while one client wants it to fail; see benchmarks/README.md."""
