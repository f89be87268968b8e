"""Products of two tensors that a run computes: matrices in stacks, and attention."""
