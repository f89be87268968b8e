"""What only puts elements elsewhere."""
