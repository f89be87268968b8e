"""Blocking and asyncio clients of a pnnx-serve server.

client        Client, AsyncClient: connections and the retry loop
calls         requests, and parsers of their answers; without I/O
retrying      which calls are retried, and when
tensors       arrays <-> bytes of the Open Inference Protocol
pictures      accepted forms of images
result        answer of a model
errors        all errors
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

__version__ = "0.5.0"
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
