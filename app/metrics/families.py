"""Every metric there is: one row each. docs/operating.md is held against this table, and so is the dashboard."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from app.models.statistics import ITEM_BOUNDS, TIME_BOUNDS


class Kind(enum.StrEnum):
    """What may be done with a metric."""

    COUNTER = "counter"  # never goes down
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with all its labels.

    Args:
        text: one line of help.
        labels: their names. Values are names of the store and words of ours, never what a client sent.
        bounds: of a histogram's buckets.
        is_most: what several workers say of one thing is not added up: the largest value counts.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    text: str
    bounds: tuple[float, ...] = ()
    is_most: bool = False


_VERSION: Final = ("model", "version")
_WORKER: Final = ("worker",)

_ROWS: Final = (
    Family("pnnx_serve_requests_total", Kind.COUNTER, (*_VERSION, "outcome"),
           "Requests that reached a model: ok, cancelled (the client went away), or the code of the error."),
    Family("pnnx_serve_request_seconds", Kind.HISTOGRAM, _VERSION,
           "Time of answered requests, from taking a place in the queue to predictions.", TIME_BOUNDS),
    Family("pnnx_serve_stage_seconds", Kind.HISTOGRAM, (*_VERSION, "stage"),
           "The same by stage: queue, preprocess (decoding included), inference, postprocess.", TIME_BOUNDS),
    Family("pnnx_serve_request_items", Kind.HISTOGRAM, _VERSION,
           "Items of answered requests: pictures, or rows of a batch.", ITEM_BOUNDS),
    Family("pnnx_serve_batch_items", Kind.HISTOGRAM, _VERSION,
           "Items of runs, which requests may share.", ITEM_BOUNDS),
    Family("pnnx_serve_batches_total", Kind.COUNTER, (*_VERSION, "limit"),
           "Runs that requests might share, by what kept them from being larger: full, few (no more waited), alone"
           " (nobody did), others (of other models or shapes)."),
    Family("pnnx_serve_batch_mismatches_total", Kind.COUNTER, _VERSION,
           "Requests whose outputs of a run of several items differed from the reference's; only with verify_batches."),
    Family("pnnx_serve_queued_requests", Kind.GAUGE, _VERSION, "Requests that are prepared, or wait for their run."),
    Family("pnnx_serve_running_requests", Kind.GAUGE, _VERSION, "Requests that are in a run."),
    Family("pnnx_serve_model_state", Kind.GAUGE, (*_VERSION, "state"),
           "Processes in which the version is loading, ready, failed or unloaded; none is named where none is known."),
    Family("pnnx_serve_model_load_seconds", Kind.GAUGE, _VERSION, "Time the version took to load, warm-up included.",
           is_most=True),
    Family("pnnx_serve_model_last_request_timestamp_seconds", Kind.GAUGE, _VERSION,
           "When a request was last answered; absent before the first.", is_most=True),
    Family("pnnx_serve_model_bytes", Kind.GAUGE, (*_VERSION, "kind"),
           "Memory by kind: weights as the file has them; compiled code with its packed weights and arenas."),
    Family("pnnx_serve_compiler_defects_total", Kind.COUNTER, _VERSION,
           "Failures that the compiler does not foresee: GET /models/{name} lists them; absent before the first."),
    Family("pnnx_serve_response_cache_lookups_total", Kind.COUNTER, (*_VERSION, "outcome"),
           "Answered requests to models with a response cache: hit (nothing was run) or miss."),
    Family("pnnx_serve_response_cache_seconds_total", Kind.COUNTER, (*_VERSION, "outcome"),
           "Time that looking up and keeping took."),
    Family("pnnx_serve_response_cache_bytes", Kind.GAUGE, _VERSION, "Memory that kept outputs take."),
    Family("pnnx_serve_response_cache_entries", Kind.GAUGE, _VERSION, "Inputs whose outputs are kept."),
    Family("pnnx_serve_http_responses_total", Kind.COUNTER, ("status",),
           "Answers of all routes by status; 499: the client went away before its answer."),
    Family("pnnx_serve_grpc_responses_total", Kind.COUNTER, ("code",),
           "Answers over gRPC by status code; CANCELLED: the client went away, or its deadline passed, before one."),
    Family("pnnx_serve_connection_refusals_total", Kind.COUNTER, ("code",),
           "Requests that were refused before they reached a route, by the code of the error."),
    Family("pnnx_serve_build_info", Kind.GAUGE, ("version", "python"),
           "Versions of the server and of Python; always 1.", is_most=True),
    Family("pnnx_serve_ready", Kind.GAUGE, _WORKER, "Whether the process is ready, as /health/ready says."),
    Family("pnnx_serve_uptime_seconds", Kind.GAUGE, _WORKER, "Time since the process began to serve."),
    Family("pnnx_serve_connections", Kind.GAUGE, _WORKER, "Open connections."),
    Family("pnnx_serve_request_memory_bytes", Kind.GAUGE, _WORKER, "Memory that requests hold of their budget."),
    Family("pnnx_serve_request_memory_limit_bytes", Kind.GAUGE, _WORKER, "That budget; see max_bytes_in_flight."),
    Family("pnnx_serve_programs_total", Kind.COUNTER, (*_WORKER, "origin"),
           "Programs made for a graph and shapes: compiled, or found in the cache on disk."),
    Family("pnnx_serve_program_seconds_total", Kind.COUNTER, (*_WORKER, "origin"), "Time that took."),
    Family("pnnx_serve_instances", Kind.GAUGE, _WORKER, "Programs kept ready to run."),
    Family("pnnx_serve_instances_bytes", Kind.GAUGE, _WORKER, "Memory they take: code, packed weights, arenas."),
    Family("pnnx_serve_compile_wishes", Kind.GAUGE, _WORKER, "Shapes that were met and have no program."),
    Family("pnnx_serve_compiling", Kind.GAUGE, _WORKER, "Whether a program is being made in the background."),
    Family("process_resident_memory_bytes", Kind.GAUGE, _WORKER,
           "Resident memory; what processes share is counted in each."),
    Family("process_cpu_seconds_total", Kind.COUNTER, _WORKER, "User and system CPU time."),
    Family("process_open_fds", Kind.GAUGE, _WORKER, "Open file descriptors."),
    Family("process_threads", Kind.GAUGE, _WORKER, "Threads of Python."),
    Family("python_gc_collections_total", Kind.COUNTER, (*_WORKER, "generation"), "Garbage collections."),
    Family("python_gc_objects_collected_total", Kind.COUNTER, (*_WORKER, "generation"), "Objects they freed."),
    Family("python_gc_seconds_total", Kind.COUNTER, (*_WORKER, "generation"), "Time everything stood still for them."),
)  # fmt: skip

FAMILIES: Final = {family.name: family for family in _ROWS}
