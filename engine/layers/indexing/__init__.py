"""Elements read and written by position or by mask."""
