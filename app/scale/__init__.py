"""Integration with cluster engines; imported only by ``pnnx-serve deploy``."""
