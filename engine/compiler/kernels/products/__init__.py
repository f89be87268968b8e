"""Products of matrices in stacks, both factors computed by the run; attention is made of them, too."""
