"""Text output of results and failures."""
