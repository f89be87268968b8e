"""What expressions may apply to a vector of float32, in arithmetic every processor has."""
