"""A graph made ready to run: the session, and what it runs it with.

session    what a program or a server holds
batches    inputs of another batch than the file's: by a graph for any batch, or in parts
dispatch   what is known of shapes that have come before: their graph, and what a run needs
executor   runs graphs, and says what is compiled of them
policies   the ways to run: compiled only, reference only, or a race of both
bodies     the same for bodies of operators that choose or repeat
outputs    what a run returns
"""

from engine.session.outputs import Outputs
from engine.session.session import Session

__all__ = ["Outputs", "Session"]
