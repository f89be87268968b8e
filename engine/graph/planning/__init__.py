"""Before a run: order, lifetimes, slots, memory."""
