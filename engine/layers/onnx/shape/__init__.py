"""Shape operators, padding and spectra."""
