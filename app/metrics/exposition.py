"""Figures as Prometheus reads them: its text format, or OpenMetrics where that is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from app.metrics.families import FAMILIES, Family, Kind
from app.metrics.snapshot import Labels, Snapshot, Value
from app.metrics.triton import HELP, triton_names

_END: Final = b"# EOF\n"
# What a family begins with: its help and its type.
_HEAD_LINES: Final = 2
# Label sets; of a histogram each has some twenty lines, which take a tenth of a millisecond.
_ROWS_AT_ONCE: Final = 8


class _Fixed(Collector):
    """Metrics that are there already."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterable[Metric]:
        return self._metrics


async def expose(snapshot: Snapshot, accept: str, *, with_triton_names: bool) -> tuple[bytes, str]:
    """The page and its media type.

    Written a few lines at a time: between them everybody else has a turn of the event loop.
    """
    write, media_type = choose_encoder(accept)
    pieces, is_open = [], "openmetrics" in media_type
    for metric, is_more in _metrics(snapshot, with_triton_names):
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Fixed([metric]))
        piece = write(registry).removesuffix(_END) if is_open else write(registry)
        pieces.append(piece.split(b"\n", _HEAD_LINES)[_HEAD_LINES] if is_more else piece)
        await asyncio.sleep(0)
    return b"".join([*pieces, _END] if is_open else pieces), media_type


def _metrics(snapshot: Snapshot, with_triton_names: bool) -> Iterator[tuple[Metric, bool]]:
    """Metrics, large ones in parts; whether it goes on with the one before."""
    for name, family in FAMILIES.items():
        rows = list(snapshot.get(name, {}).items())
        for start in range(0, len(rows) or 1, _ROWS_AT_ONCE):
            yield _metric(family, rows[start : start + _ROWS_AT_ONCE]), start > 0
    if with_triton_names:
        for name, values in triton_names(snapshot).items():
            # A counter would be written with _total behind its name.
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
