"""A graph made ready to run: the session, and the parts that run it.

session    the object that a program or a server holds
batches    inputs of another batch size than the file's: by a graph for any batch, or split into parts
dispatch   facts about shapes that were seen before: their graph, and the needs of a run
executor   runs graphs, and answers questions about compiled programs
policies   the ways to run: compiled only, reference only, or a race of both
subgraphs  the same for subgraphs of operators that branch or loop
outputs    the result of a run
state      what a session keeps from run to run of one stream
"""

from engine.session.outputs import Outputs
from engine.session.session import Session
from engine.session.state import State

__all__ = ["Outputs", "Session", "State"]
