"""Common parts of passes: facts about graphs, constants and trees, and ways to change them."""
