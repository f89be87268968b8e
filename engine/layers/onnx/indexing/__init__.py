"""Elements by their places, and places by their elements."""
