"""Order along a dimension: sorted rows, places in them, running sums and extremes."""
