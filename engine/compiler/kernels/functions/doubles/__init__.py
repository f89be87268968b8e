"""Functions of float64 vectors that take polynomials: what float32 has beside, with twice the digits."""
