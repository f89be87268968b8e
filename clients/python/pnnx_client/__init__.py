"""Clients of a pnnx-serve server: one that waits, and one to be awaited.

client        Client, AsyncClient: connections, and the loop that tries again
calls         what is asked, and how an answer is read; nothing here sends anything
retrying      whether, and when, it is tried again
tensors       arrays <-> the bytes of the Open Inference Protocol
pictures      what counts as a picture
result        what a model answered
errors        everything that can go wrong
"""

from __future__ import annotations

from pnnx_client.client import AsyncClient, Client
from pnnx_client.errors import (
    BusyError,
    DeadlineError,
    DeniedError,
    InvalidRequestError,
    NotFoundError,
    PnnxError,
    RetryLaterError,
    ServerError,
    TooLargeError,
    TransportError,
    UnavailableError,
)
from pnnx_client.result import Result

__version__ = "0.1.0"
__all__ = [
    "AsyncClient",
    "BusyError",
    "Client",
    "DeadlineError",
    "DeniedError",
    "InvalidRequestError",
    "NotFoundError",
    "PnnxError",
    "Result",
    "RetryLaterError",
    "ServerError",
    "TooLargeError",
    "TransportError",
    "UnavailableError",
]
