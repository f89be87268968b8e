"""Functions of single elements, and layers that leave elements unchanged."""
