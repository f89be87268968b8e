"""Rules by operator family: how an operator treats the batch axis. Importing this package fills the table."""

from engine.graph.batch.independence.rules import (
    elementwise,
    images,
    indexing,
    learning,
    products,
    rows,
    sequences,
    shapes,
    sizes,
)

__all__ = ["elementwise", "images", "indexing", "learning", "products", "rows", "sequences", "shapes", "sizes"]
