"""A blueprint at work: its code, memory and threads, which instances there are, and what a run took."""
