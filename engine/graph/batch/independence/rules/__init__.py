"""Rules by layer: how it treats the batch axis. Importing this package fills the table."""

from engine.graph.batch.independence.rules import families, movement, special

__all__ = ["families", "movement", "special"]
