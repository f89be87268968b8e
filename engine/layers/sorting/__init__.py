"""Elements by their order: sorted, searched, counted."""
