"""Planning of a run: execution order and lifetimes (execution_order), then slots and memory (plan)."""
