"""The fast path: requests to run a model, answered by the connection they came on, without HTTP parser and ASGI.

A client that asks again and again sends the same head each time. A head that was parsed before, and was good, is known
by its bytes, so it need not be parsed again. The routes are what defines the answers (app/http/routes/infer.py,
app/http/v2/infer.py): this is only another way to them, with the same functions.

fast_path   which requests may take it, one object for all connections of a server
shortcut    one connection's side of it
heads       the heads that were parsed before
body        a long body on its way in; inlet reads it from the socket to where it stays
request     one request: what the layers of the app do for others
sending     its answer
"""
