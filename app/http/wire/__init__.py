"""Requests and answers without ASGI: bodies read from the socket, answers as bytes, and what uvicorn's parser needs."""
