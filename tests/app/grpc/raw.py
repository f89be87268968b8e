"""Calls with handmade messages or arbitrary bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from tritonclient.grpc import service_pb2 as pb

from tests.app.sockets import Front
from tests.patience import PATIENCE_S

SERVICE = "/inference.GRPCInferenceService/"
# No call takes as long, unless what it waits for never comes.
# A channel shares no connection with another.
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]


@contextmanager
def channel(front: Front, *options: tuple[str, Any]) -> Iterator[grpc.Channel]:
    address = f"127.0.0.1:{front.server.grpc_port}"
    with grpc.insecure_channel(address, options=[*OPTIONS, *options]) as made:
        yield made


def call(made: grpc.Channel, method: str, message: Any, **more: Any) -> Any:
    """Return the answer of a method as the client's message class; message may be bytes."""
    data = message if isinstance(message, bytes) else message.SerializeToString()
    path = method if method.startswith("/") else SERVICE + method
    answer = made.unary_unary(path)(data, **{"timeout": PATIENCE_S, **more})
    name = "ModelInferResponse" if method == "ModelInfer" else f"{method}Response"
    return getattr(pb, name).FromString(answer) if hasattr(pb, name) else answer


def refused(made: grpc.Channel, method: str, message: Any, **more: Any) -> tuple[str, str]:
    """Return code and message of a refused call."""
    try:
        answer = call(made, method, message, **more)
    except grpc.RpcError as exc:
        return exc.code().name, exc.details()  # type: ignore[attr-defined]  # an error of a call is a call
    raise AssertionError(f"it was answered: {str(answer)[:500]}")


def request(model: str = "simple", raw: Iterable[bytes] = (), **more: Any) -> pb.ModelInferRequest:
    return pb.ModelInferRequest(model_name=model, raw_input_contents=raw, **more)


def tensor(name: str, datatype: str, shape: Iterable[int], **contents: Any) -> pb.ModelInferRequest.InferInputTensor:
    given = pb.InferTensorContents(**contents) if contents else None
    return pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape, contents=given)
