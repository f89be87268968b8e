"""Pictures: encoded bytes -> upright RGB or grey -> the network's input, and coordinates back again."""
