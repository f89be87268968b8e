"""Functions of float64 vectors that need polynomials of higher degree than float32."""
