"""Images and regions."""
