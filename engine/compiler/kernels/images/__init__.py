"""Images read between their pixels."""
