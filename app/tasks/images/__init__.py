"""Tasks whose predictions are about pictures."""
