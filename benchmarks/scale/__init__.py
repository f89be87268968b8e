"""Many machines, simulated: what balancing, bursts, losses and cold starts do to waiting, fed with measured times."""
