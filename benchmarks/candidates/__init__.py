"""Choices of the cost models for described machines, compared with the best candidates of a simulated core."""
