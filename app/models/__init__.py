"""Models: found in a folder, loaded side by side, tried, watched, listed, and run in lanes."""
