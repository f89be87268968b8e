"""Fixtures: a server of the protocol's models on a socket, and a third-party client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import tritonclient.grpc as triton

from tests.app.sockets import Front, listening
from tests.app.v2_models import write_v2_zoo


@pytest.fixture(scope="package")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    store = tmp_path_factory.mktemp("calls")
    write_v2_zoo(store)
    with listening(store, grpc_port=0) as front:
        yield front


@contextmanager
def calling(front: Front, **more: Any) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{front.server.grpc_port}", **more) as client:
        yield client


@pytest.fixture
def client(front: Front) -> Iterator[triton.InferenceServerClient]:
    with calling(front) as client:
        yield client
