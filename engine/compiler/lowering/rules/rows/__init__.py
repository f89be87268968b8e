"""What looks at whole rows: normalisation, reductions, distances, order."""
