"""The short way: requests to run a model, answered by the connection they came on.

A client that asks again and again sends the same head each time. One that was parsed before, and was good, is known by
its bytes; what it says need not be found out again, and neither the parser nor ASGI has anything to do. The routes are
what defines the answers (app/http/routes/infer.py, app/http/v2/infer.py): here is only another way to them.
"""
