"""What passes share: what they know of graphs, constants and trees, and how they change them."""
