"""The /metrics page in Prometheus' text format, or OpenMetrics when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from app.metrics.collector import FAMILIES, Family, Kind, Labels, Snapshot, Value

_END: Final = b"# EOF\n"
# Lines at the start of a family: its help and its type.
_HEAD_LINES: Final = 2
# Label sets written without a pause; for a histogram each has some twenty lines and takes 0.1 ms.
_ROWS_AT_ONCE: Final = 8
_OK: Final = "ok"
_STAGES: Final = {
    "queue": "nv_inference_queue_duration_us",
    "preprocess": "nv_inference_compute_input_duration_us",
    "inference": "nv_inference_compute_infer_duration_us",
    "postprocess": "nv_inference_compute_output_duration_us",
}
_CACHE: Final = {"hit": ("num_hits", "hit_duration"), "miss": ("num_misses", "miss_duration")}
HELP: Final = {
    "nv_inference_request_success": "Answered requests.",
    "nv_inference_request_failure": "Requests that got an error.",
    "nv_inference_count": "Items of answered requests.",
    "nv_inference_exec_count": "Runs of answered requests.",
    "nv_inference_pending_request_count": "Waiting requests.",
    "nv_inference_request_duration_us": "Time of answered requests.",
    "nv_inference_queue_duration_us": "Waiting time of answered requests.",
    "nv_inference_compute_input_duration_us": "Preprocessing time of answered requests.",
    "nv_inference_compute_infer_duration_us": "Inference time of answered requests.",
    "nv_inference_compute_output_duration_us": "Postprocessing time of answered requests.",
    "nv_cache_num_hits_per_model": "Response cache hits.",
    "nv_cache_num_misses_per_model": "Response cache misses.",
    "nv_cache_hit_duration_per_model": "Lookup time of response cache hits, in microseconds.",
    "nv_cache_miss_duration_per_model": "Lookup and insertion time of response cache misses, in microseconds.",
}


class _Fixed(Collector):
    """Collector of given metrics."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def expose(
    snapshot: Snapshot, accept: str, *, with_triton_names: bool, with_histograms: bool = True
) -> tuple[bytes, str]:
    """Return the page and its media type.

    A page of many models takes tenths of a second, so it is written in a thread and in pieces that do not block other
    threads.
    """
    write, media_type = choose_encoder(accept)
    pieces, is_open = [], "openmetrics" in media_type
    for metric, is_more in _metrics(snapshot, with_triton_names, with_histograms):
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Fixed([metric]))
        piece = write(registry).removesuffix(_END) if is_open else write(registry)
        pieces.append(piece.split(b"\n", _HEAD_LINES)[_HEAD_LINES] if is_more else piece)
    return b"".join([*pieces, _END] if is_open else pieces), media_type


def _metrics(snapshot: Snapshot, with_triton_names: bool, with_histograms: bool) -> Iterator[tuple[Metric, bool]]:
    """Yield metrics, large ones in parts, and whether a part continues the one before."""
    for name, family in FAMILIES.items():
        if family.kind is Kind.HISTOGRAM and not with_histograms:
            continue
        rows = list(snapshot.get(name, {}).items())
        for start in range(0, len(rows) or 1, _ROWS_AT_ONCE):
            yield _metric(family, rows[start : start + _ROWS_AT_ONCE]), start > 0
    if with_triton_names:
        for name, values in triton_names(snapshot).items():
            # A counter's name would get the suffix _total.
            metric = Metric(name, HELP[name], "unknown")
            for (model, version), value in values.items():
                metric.add_sample(name, {"model": model, "version": version}, value)
            yield metric, False


def _metric(family: Family, rows: Iterable[tuple[Labels, Value]]) -> Metric:
    if family.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(family.name, family.text, labels=family.labels)
        ends = [*map(_end, family.bounds), "+Inf"]
        for labels, value in rows:
            assert isinstance(value, list)  # as every one of its family
            histogram.add_metric(labels, list(zip(ends, accumulate(value[1:]), strict=True)), value[0])
        return histogram
    kind = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    plain = kind(family.name, family.text, labels=family.labels)
    for labels, value in rows:
        assert not isinstance(value, list)  # as every one of its family
        plain.add_metric(labels, value)
    return plain


def _end(bound: float) -> str:
    return str(float(bound))


def triton_names(snapshot: Snapshot) -> dict[str, dict[Labels, float]]:
    """Return the metrics under Triton's names, for existing dashboards; times in microseconds."""
    result: dict[str, dict[Labels, float]] = {name: {} for name in HELP}
    for name, labels, value in _rows(snapshot):
        result[name][labels] = result[name].get(labels, 0) + value
    for labels in result["nv_inference_request_success"]:  # a model that had no request has no histograms
        for name, values in result.items():
            if not name.startswith("nv_cache_"):
                values.setdefault(labels, 0)
    return result


def _rows(snapshot: Snapshot) -> Iterator[tuple[str, Labels, float]]:
    for labels, value in snapshot.get("pnnx_serve_requests_total", {}).items():
        is_ok = labels[2] == _OK
        count = _number(value)
        yield "nv_inference_request_success", labels[:2], count if is_ok else 0
        yield "nv_inference_request_failure", labels[:2], 0 if is_ok else count
    for labels, value in snapshot.get("pnnx_serve_request_items", {}).items():
        yield "nv_inference_count", labels, _number(value)
    for labels, value in snapshot.get("pnnx_serve_batch_items", {}).items():
        yield "nv_inference_exec_count", labels, sum(value[1:]) if isinstance(value, list) else value
    for labels, value in snapshot.get("pnnx_serve_queued_requests", {}).items():
        yield "nv_inference_pending_request_count", labels, _number(value)
    for labels, value in snapshot.get("pnnx_serve_request_seconds", {}).items():
        yield "nv_inference_request_duration_us", labels, int(_number(value) * 1e6)
    for labels, value in snapshot.get("pnnx_serve_response_cache_lookups_total", {}).items():
        yield f"nv_cache_{_CACHE[labels[2]][0]}_per_model", labels[:2], _number(value)
    for labels, value in snapshot.get("pnnx_serve_response_cache_seconds_total", {}).items():
        yield f"nv_cache_{_CACHE[labels[2]][1]}_per_model", labels[:2], int(_number(value) * 1e6)
    for labels, value in snapshot.get("pnnx_serve_stage_seconds", {}).items():
        yield _STAGES[labels[2]], labels[:2], int(_number(value) * 1e6)


def _number(value: Value) -> float:
    """Return the value, or the sum of a histogram."""
    return value[0] if isinstance(value, list) else value
