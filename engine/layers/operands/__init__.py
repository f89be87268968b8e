"""What layers ask of their operands: axes, dtypes, fit, and views that stay within memory."""
