"""From operators as read to operators that are joined, bound and inferred, and what contradicts the file."""
