"""Models that are not networks: trees."""
