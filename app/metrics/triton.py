"""The same figures under Triton's names, for dashboards and autoscalers made for it: times in microseconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from app.metrics.snapshot import Labels, Snapshot, Value

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
    "nv_inference_exec_count": "Runs that answered them.",
    "nv_inference_pending_request_count": "Requests that wait.",
    "nv_inference_request_duration_us": "Time of answered requests.",
    "nv_inference_queue_duration_us": "What of it was waiting.",
    "nv_inference_compute_input_duration_us": "What of it was preprocessing.",
    "nv_inference_compute_infer_duration_us": "What of it was inference.",
    "nv_inference_compute_output_duration_us": "What of it was postprocessing.",
    "nv_cache_num_hits_per_model": "Answered requests whose outputs were known.",
    "nv_cache_num_misses_per_model": "Answered requests whose outputs were looked for in vain.",
    "nv_cache_hit_duration_per_model": "Time that looking up took for the first, in microseconds.",
    "nv_cache_miss_duration_per_model": "And for the others, keeping their outputs included.",
}


def triton_names(snapshot: Snapshot) -> dict[str, dict[Labels, float]]:
    """Values by name, and by model and version."""
    result: dict[str, dict[Labels, float]] = {name: {} for name in HELP}
    for name, labels, value in _rows(snapshot):
        result[name][labels] = result[name].get(labels, 0) + value
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
    """The value itself, or a histogram's sum."""
    return value[0] if isinstance(value, list) else value
