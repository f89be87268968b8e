"""Simulation of many machines with measured times: balancing, bursts, losses and cold starts."""
