"""How much memory there is, what requests may take of it together, and what goes back to the system."""
