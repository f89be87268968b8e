"""JSON bodies: measured before they are parsed, parsed piece by piece where they are large, made tensors."""
