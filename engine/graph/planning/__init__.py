"""Before a run: order, then lifetimes, and slots and memory by them (plan)."""
