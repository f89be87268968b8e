"""Task detection: objects in a picture, as boxes."""
