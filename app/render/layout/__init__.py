"""Where to draw the boxes and lines of a directed graph, after Sugiyama, Tagawa and Toda (1981).

In this order, one module each:

    layers      every node gets a layer, below all nodes it depends on
    skeleton    a line that passes layers gets a waypoint in each; lines of one source share theirs
    ordering    nodes change places inside their layers until few lines cross
    placement   x: chains of nodes become straight columns, boxes do not touch
    layout      y, and the lines

Everything is close to linear in boxes and waypoints. Their number is kept linear in the boxes: the longest lines of a
graph that has too many are led around its side instead. The result depends on nothing but the arguments.
"""

from app.render.layout.layers import Net
from app.render.layout.layout import Box, Layout, Route, lay_out

__all__ = ["Box", "Layout", "Net", "Route", "lay_out"]
