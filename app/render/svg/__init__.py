"""A drawing of the graph that explains itself: one file, no script, nothing fetched.

It follows the reader's light or dark scheme, and can be put into a page: every rule and name in it begins with
``pnnx-graph``.
"""

from app.render.svg.drawing import render_svg

__all__ = ["render_svg"]
