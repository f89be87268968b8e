"""One client's connection, from accept to close.

admission     how many connections there may be, and which make room for others
connection    what happens to a connection: events of asyncio, the parser and admission
base          what others do with one: read a body, answer past the app, refuse
incoming      how much of a request has come, and since when
parser_feed   which of the bytes the parser gets
head          what is wrong with a request's head
answering     an answer on its way out
outgoing      how fast the client takes it
closing       the last answer, and the end
"""
