"""Functions of single elements, and what leaves elements as they are."""
