"""Tasks whose predictions are about texts."""
