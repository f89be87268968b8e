"""Elements picked and written by position or by mask."""
