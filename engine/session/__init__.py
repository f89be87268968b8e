"""A graph made ready to run: the session, and what it runs it with.

session    what a program or a server holds
batches    inputs of another batch than the file's: by a graph for any batch, or in parts
estimates  what a run on some shapes needs, told before it is begun
routes     the way of shapes that have run before
executor   machine code where there is some, and the reference where there is none
bodies     the same for bodies of operators that choose or repeat
outputs    what a run returns
"""

from engine.session.outputs import Outputs
from engine.session.session import Session

__all__ = ["Outputs", "Session"]
