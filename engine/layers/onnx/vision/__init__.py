"""Images and their regions."""
