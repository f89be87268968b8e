"""Many elements reduced to one, and running results."""
