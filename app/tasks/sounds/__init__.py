"""Tasks whose predictions are about sounds."""
