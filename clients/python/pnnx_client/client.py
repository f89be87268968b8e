"""Blocking and asyncio client with the same methods."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx

from pnnx_client import calls
from pnnx_client.calls import Call, Inputs
from pnnx_client.errors import DeadlineError, PnnxError, RetryLaterError, TransportError
from pnnx_client.pictures import pictures_of
from pnnx_client.result import Result
from pnnx_client.retrying import Attempts

T = TypeVar("T")

_TIMEOUT_S: Final = 60.0
_RETRIES: Final = 3
# Errors that mean "not live" or "not ready".
_NO: Final = (TransportError, DeadlineError, RetryLaterError)


class Client:
    """Blocking client that reuses its connections. Threads may share one.

    Args:
        url: ``http://host:port``, with the path prefix of the server, if it has one.
        api_key: sent as ``Authorization: Bearer``.
        timeout: seconds for a call with its retries; None for no limit.
        retries: number of retries of a call that is answered 429 or 503, or not at all.
        http: further keywords of ``httpx.Client``: ``verify``, ``cert``, ``proxy``, ``limits``, ``headers``, ...

    Raises:
        ValueError: the url is invalid.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float | None = _TIMEOUT_S,
        retries: int = _RETRIES,
        **http: Any,
    ) -> None:
        self._http = httpx.Client(base_url=_checked(url), **http)
        self._http.headers.update(_headers(api_key))
        self._timeout, self._retries = timeout, retries

    def infer(
        self,
        model: str,
        inputs: Inputs,
        *,
        version: int | str | None = None,
        outputs: Sequence[str] | bool | None = None,
        parameters: Mapping[str, Any] | None = None,
        predictions: bool | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run a model.

        Args:
            inputs: an array for the first input, arrays by name, an image (path, encoded bytes, Pillow image), or a
                list of images, which is a batch.
            version: number or tag; None for the newest that is ready.
            outputs: names, or True for all. None: all outputs if there are no predictions.
            parameters: options of the task, such as ``top_k`` and ``score_threshold``. They imply predictions.
            predictions: True to get predictions, as JSON. None: only for images. Without predictions, tensors are
                sent and received as bytes.
            timeout: seconds; None for the client's timeout.

        Raises:
            PnnxError: there is no answer, or it is an error.
            TypeError: inputs are not numbers.
            ValueError: neither outputs nor predictions are requested.
            OSError: an image file cannot be read.
        """
        timeout = self._timeout if timeout is None else timeout
        call = calls.infer(
            model, inputs, version=version, outputs=outputs, parameters=parameters, predictions=predictions,
            timeout=timeout,
        )  # fmt: skip
        return self._run(call, timeout)

    def graph(
        self, model: str, format: str = "json", *, version: int | str | None = None, profile: bool = False
    ) -> Any:
        """Return the graph of a model: a dict for json; text for svg, dot, mermaid, text and param."""
        return self._run(calls.graph(model, format, version=version, profile=profile))

    def models(self) -> list[dict[str, Any]]:
        """Return all models: served ones, and failed ones with the reason."""
        return self._run(calls.models())

    def model(self, name: str) -> dict[str, Any]:
        """Return the description of a model: versions, inputs, outputs, labels, statistics."""
        return self._run(calls.model(name))

    def live(self) -> bool:
        """Return whether the server answers, without retries."""
        return self._holds(calls.health("live"))

    def ready(self) -> bool:
        """Return whether the server is ready, without retries."""
        return self._holds(calls.health("ready"))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _holds(self, call: Call[bool]) -> bool:
        try:
            return self._run(call, retries=0)
        except _NO:
            return False

    def _run(self, call: Call[T], timeout: float | None = None, retries: int | None = None) -> T:
        attempts = Attempts(
            self._retries if retries is None else retries, self._timeout if timeout is None else timeout
        )
        while True:
            try:
                left_s = attempts.left_s
                return call.read(self._http.request(call.method, call.path, timeout=left_s, **call.sent))
            except (httpx.RequestError, PnnxError) as failure:
                pause_s = attempts.pause_s(failure)
            time.sleep(pause_s)


class AsyncClient:
    """Asyncio client for one event loop, with the arguments of ``Client``; ``http`` is for ``httpx.AsyncClient``."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float | None = _TIMEOUT_S,
        retries: int = _RETRIES,
        **http: Any,
    ) -> None:
        self._http = httpx.AsyncClient(base_url=_checked(url), **http)
        self._http.headers.update(_headers(api_key))
        self._timeout, self._retries = timeout, retries

    async def infer(
        self,
        model: str,
        inputs: Inputs,
        *,
        version: int | str | None = None,
        outputs: Sequence[str] | bool | None = None,
        parameters: Mapping[str, Any] | None = None,
        predictions: bool | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run a model, see ``Client.infer``. Image files are read in a thread."""
        timeout = self._timeout if timeout is None else timeout
        make = partial(
            calls.infer, model, inputs, version=version, outputs=outputs, parameters=parameters,
            predictions=predictions, timeout=timeout,
        )  # fmt: skip
        call = make() if pictures_of(inputs) is None else await asyncio.to_thread(make)
        return await self._run(call, timeout)

    async def graph(
        self, model: str, format: str = "json", *, version: int | str | None = None, profile: bool = False
    ) -> Any:
        """Return the graph of a model, see ``Client.graph``."""
        return await self._run(calls.graph(model, format, version=version, profile=profile))

    async def models(self) -> list[dict[str, Any]]:
        """Return all models: served ones, and failed ones with the reason."""
        return await self._run(calls.models())

    async def model(self, name: str) -> dict[str, Any]:
        """Return the description of a model: versions, inputs, outputs, labels, statistics."""
        return await self._run(calls.model(name))

    async def live(self) -> bool:
        """Return whether the server answers, without retries."""
        return await self._holds(calls.health("live"))

    async def ready(self) -> bool:
        """Return whether the server is ready, without retries."""
        return await self._holds(calls.health("ready"))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _holds(self, call: Call[bool]) -> bool:
        try:
            return await self._run(call, retries=0)
        except _NO:
            return False

    async def _run(self, call: Call[T], timeout: float | None = None, retries: int | None = None) -> T:
        attempts = Attempts(
            self._retries if retries is None else retries, self._timeout if timeout is None else timeout
        )
        while True:
            try:
                left_s = attempts.left_s
                return call.read(await self._http.request(call.method, call.path, timeout=left_s, **call.sent))
            except (httpx.RequestError, PnnxError) as failure:
                pause_s = attempts.pause_s(failure)
            await asyncio.sleep(pause_s)


def _checked(url: str) -> httpx.URL:
    try:
        found = httpx.URL(url)
    except httpx.InvalidURL as exc:
        raise ValueError(f"url: {exc}") from None
    if found.scheme not in ("http", "https") or not found.host:
        raise ValueError(f"url: found '{url}', expected http://host:port")
    return found


def _headers(api_key: str | None) -> dict[str, str]:
    return {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
