"""Spans through OpenTelemetry's SDK, configured by the OTEL_* variables (exporters, sampling, service name).

The tracer provider belongs to this server, not to the process, so that other instrumentation does not record the same
requests again.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Final

from opentelemetry import trace as api
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from app.models.statistics import Timing
from app.settings import SettingsError
from app.tracing.request import TracedRequest
from app.version import version

_GROUP: Final = "opentelemetry_traces_exporter"
_PROTOCOLS: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_NAME: Final = "pnnx-serve"
# The longest wait for a collector when the server stops.
_LAST_S: Final = 3.0
_NS: Final = 1_000_000_000


def exporters() -> list[Any]:
    """Return the exporters that OTEL_TRACES_EXPORTER names; by default OTLP.

    Raises:
        SettingsError: one of them is not installed.
    """
    return [_entry(name).load()() for name in _names()]


def check_exporters() -> None:
    """Check that all exporters are installed.

    Raises:
        SettingsError: one of them is not.
    """
    for name in _names():
        _entry(name)


class OtelSpans:
    """Recorder of spans for exporters.

    Args:
        exporters: they get spans in batches, in a thread of their own.
        processor: class of span processor made for each exporter.
    """

    def __init__(self, exporters: Sequence[Any], processor: Any = BatchSpanProcessor) -> None:
        ids = RandomIdGenerator()
        self._random = ids.generate_span_id
        self._next: str | None = None
        self._trace = ""
        ids.generate_span_id = self._span_id
        ids.generate_trace_id = lambda: int(self._trace, 16)
        own = {"service.version": version()}
        if "OTEL_SERVICE_NAME" not in os.environ and "service.name" not in os.environ.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        ):
            own["service.name"] = _NAME
        self._provider = TracerProvider(resource=Resource.create(own), id_generator=ids, shutdown_on_exit=False)
        for exporter in exporters:
            self._provider.add_span_processor(processor(exporter))
        self._tracer = self._provider.get_tracer(_NAME, version())

    def record(
        self, request: TracedRequest, name: str, attributes: Mapping[str, str | int], *, is_failed: bool
    ) -> None:
        """Record a request that ends now: one span for it, and one for each stage of its answer."""
        now, clock = time.time_ns(), time.perf_counter()
        account = request.account
        span = self._begin(request, name, attributes, now - round((clock - request.began) * _NS))
        if span.is_recording():
            span.set_attribute("request.id", request.id)
            for key, value in account.fields().items():
                if not key.endswith("_ms") and value is not None:
                    span.set_attribute(f"inference.{key}", value)
            if account.timing is not None and account.began is not None:
                self._record_stages(span, account.timing, now - round((clock - account.began) * _NS))
            if is_failed:
                span.set_status(api.Status(api.StatusCode.ERROR))
        span.end(now)

    def _begin(self, request: TracedRequest, name: str, attributes: Mapping[str, str | int], start_ns: int) -> Any:
        """Start the request's span with the ids that its client and the log have."""
        trace, model = request.trace, request.account.model
        assert trace is not None  # see ``begin_trace``
        # Without a parent the span begins a trace, even if another library has a span open here.
        parent: api.Span = api.INVALID_SPAN
        if trace.parent is not None:
            sender = api.SpanContext(
                trace_id=int(trace.trace, 16),
                span_id=int(trace.parent, 16),
                is_remote=True,
                trace_flags=api.TraceFlags(trace.flags),
            )
            parent = api.NonRecordingSpan(sender)
        self._trace, self._next = trace.trace, trace.span
        try:
            return self._tracer.start_span(
                name if model is None else f"{name} {model}",
                context=api.set_span_in_context(parent),
                kind=api.SpanKind.SERVER,
                attributes=dict(attributes),
                start_time=start_ns,
            )
        finally:
            self._next = None

    def _record_stages(self, span: Any, timing: Timing, start_ns: int) -> None:
        """Record the stages in sequence from when the request reached its model; all waiting is shown first."""
        context = api.set_span_in_context(span)
        for name, seconds in _stages(timing):
            end_ns = start_ns + round(seconds * _NS)
            self._tracer.start_span(name, context=context, start_time=start_ns).end(end_ns)
            start_ns = end_ns

    async def close(self) -> None:
        """Send what is left, within a few seconds."""
        last = threading.Thread(target=self._provider.shutdown, name="spans", daemon=True)
        last.start()
        await asyncio.to_thread(last.join, _LAST_S)

    def _span_id(self) -> int:
        return int(self._random()) if self._next is None else int(self._next, 16)


def _stages(timing: Timing) -> Iterator[tuple[str, float]]:
    """Yield the stages of a request; for a pipeline its steps."""
    steps = timing.steps or {}
    prepared_s = timing.decode_s + timing.preprocess_s
    yield "queue", timing.queue_s
    yield "preprocess", prepared_s - sum(step.decode_s + step.preprocess_s for step in steps.values())
    if timing.steps is not None:
        yield from ((f"step {name}", step.total_s) for name, step in steps.items())
        return
    yield "infer", timing.infer_s
    yield "postprocess", timing.postprocess_s


def _names() -> list[str]:
    names = [name.strip() for name in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(",") if name.strip()]
    return [_otlp() if name == "otlp" else name for name in names if name != "none"]


def _otlp() -> str:
    """Return the name of the OTLP exporter for the configured protocol."""
    ours = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
    protocol = ours or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
    if protocol not in _PROTOCOLS:
        raise SettingsError(f"OTEL_EXPORTER_OTLP_PROTOCOL: found '{protocol}', expected one of {', '.join(_PROTOCOLS)}")
    return _PROTOCOLS[protocol]


def _entry(name: str) -> Any:
    found = {each.name: each for each in entry_points(group=_GROUP)}
    if name not in found:
        raise SettingsError(f"OTEL_TRACES_EXPORTER: found '{name}', expected none, otlp or one of {sorted(found)}")
    return found[name]
