"""Images resampled, and regions of them."""
