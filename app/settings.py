"""Every setting of the server, by section: one row each, with default, unit and one line of help.

A setting ``name`` is read from the environment variable ``PNNX_SERVE_NAME``, and else from the file that
``PNNX_SERVE_CONFIG`` names (app/sources.py). docs/settings.md is checked against this file.
Nothing here imports numpy: the threads setting must be known before that happens (app/thread_limits.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from app.location import Remote, locate, stores_folder
from app.messages import explain_validation, parse_size
from app.sources import CONFIG, PREFIX, SECRETS, SettingsError, read_file, read_variables, variable

__all__ = ["PREFIX", "SECRETS", "SECTIONS", "Settings", "SettingsError", "variable"]


def _row(default: Any, unit: str, text: str, **limits: Any) -> Any:
    return Field(default, description=text, json_schema_extra={"unit": unit}, **limits)


class StoreSettings(BaseModel):
    """Store of models."""

    store: Annotated[Path | Remote, BeforeValidator(locate)] = _row(
        Path("model_store"),
        "folder",
        "Folder of the models to serve, or s3://, gs://, https:// for one elsewhere; that needs the extra [remote].",
    )
    store_poll_s: float = _row(
        60.0, "seconds", "How often a store elsewhere is asked whether it has changed; 0: never.", ge=0
    )
    store_dir: Path | None = _row(
        None, "folder", "Where files of such a store are kept; unset: stores in the folder of the compile cache."
    )
    store_max_bytes: int = _row(64 * 2**30, "bytes", "Largest store that is fetched from elsewhere, unpacked.", ge=1)
    model_name: str | None = _row(
        None, "name", "The store's folder is one model by itself, and is served under this name."
    )
    reload_interval_s: float = _row(
        2.0, "seconds", "How often the store is looked at, to serve what was replaced or has come; 0: never.", ge=0
    )
    model_control: Literal["poll", "explicit", "none"] = _row(
        "poll",
        "choice",
        "Who says what of the store is served: its folder and calls, calls alone, or the folder at the start alone.",
    )
    load_model: tuple[str, ...] = _row(
        (), "names", "With explicit, and only so: models to load at the start, by comma; * for all."
    )

    @field_validator("load_model")
    @classmethod
    def _check_load_model(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """Whoever names models to load wants the others not loaded, which nothing but explicit does."""
        control = info.data.get("model_control", "explicit")
        if names and control != "explicit":
            raise ValueError(f"names models to load, which takes model_control explicit; it is {control}")
        return names


class ModelsSettings(BaseModel):
    """Models."""

    default_model: str | None = _row(
        None, "name", "Model for requests that name none; a store of one needs no default."
    )
    required: tuple[str, ...] = _row(
        (), "names", "Models that /health/ready waits for, by comma; unset: all that the server should load."
    )
    warmup: bool = _row(True, "flag", "Run every model once before it counts as ready.")
    strict_warmup: bool = _row(
        False, "flag", "Refuse models that cannot be warmed up on zeros; off: a remark, unless they can never run."
    )
    strict: bool = _row(
        False, "flag", "Refuse models that contradict their files or show a loss of the export; off: only warn."
    )
    load_timeout_s: float = _row(300.0, "seconds", "Time one model may take to load; then it has failed.", gt=0)
    plugins: tuple[str, ...] = _row(
        (), "modules", "Python modules or .py files with operators of your own, by comma; loading one runs it."
    )
    bundles: bool = _row(
        True,
        "flag",
        "Run the code of bundles in the store; off: only their pairs are read, where others may write to the store.",
    )


class EngineSettings(BaseModel):
    """Engine."""

    backend: Literal["auto", "compiled", "reference"] = _row("auto", "choice", "How models run.")
    threads: int | None = _row(
        None, "threads", "Upper limit of compute threads; unset: all this process may use.", ge=1
    )
    winograd: Literal["auto", "off"] = _row(
        "auto", "choice", "off: convolutions are summed directly, which is slower and closer to the reference."
    )
    passes_off: tuple[str, ...] = _row((), "names", "Graph optimisations to leave out, by comma; see passes.md.")
    cache: bool = _row(True, "flag", "Keep what is compiled on disk, and start from there.")
    cache_dir: Path | None = _row(
        None, "folder", "Where it is kept; unset: pnnx-serve in the user's folder for caches."
    )
    cache_max_bytes: int = _row(
        4 * 2**30, "bytes", "Limit of all that is kept; what was not used for longest goes first.", ge=0
    )
    instances_max_bytes: int | None = _row(
        None,
        "bytes",
        "Memory for code compiled for other shapes than the models' own, in all; unset: a quarter of what there is.",
        ge=0,
    )
    verify_batches: bool = _row(
        False, "flag", "For debugging: compute runs of several items again on the reference, log and count differences."
    )


class QueueSettings(BaseModel):
    """Queue and timeouts."""

    max_in_flight: int | None = _row(
        None, "runs", "Runs of one model that go on at once; unset: one, on all its threads.", ge=1
    )
    max_queue: int = _row(64, "requests", "Requests of one model that may wait; one more is answered 429.", ge=0)
    max_wait_s: float | None = _row(
        None,
        "seconds",
        "A request that would wait longer for its run is answered 429; unset: 1 s, or more while at most 24 wait.",
        gt=0,
    )
    request_timeout_s: float = _row(30.0, "seconds", "Time for an answer, waiting included; then 504.", gt=0)
    retry_after_s: int = _row(1, "seconds", "The least that Retry-After tells a client answered 429 or 503.", ge=1)


class ServerSettings(BaseModel):
    """Server."""

    host: str = _row("127.0.0.1", "address", "Address to listen on; 0.0.0.0 for every interface.")
    port: int = _row(8000, "port", "Port to listen on; 0 lets the system choose one.", ge=0, le=65535)
    grpc_port: int | None = _row(
        None, "port", "Port for gRPC, 0 lets the system choose; needs the extra [grpc]; unset: no gRPC.", ge=0, le=65535
    )
    grpc_max_calls: int = _row(
        256, "calls", "gRPC calls open in a process, half of them streams at most; one more: RESOURCE_EXHAUSTED.", ge=2
    )
    workers: int = _row(1, "processes", "Server processes; more than one only helps loads bound by HTTP.", ge=1, le=64)
    drain_delay_s: float = _row(
        0.0, "seconds", "From SIGTERM to closing the port, not ready but serving: for load balancers.", ge=0
    )
    shutdown_timeout_s: float = _row(
        30.0, "seconds", "How long requests in flight may take to finish at the end.", gt=0
    )
    shared_memory: bool = _row(
        False, "flag", "Clients on the machine may register shared memory for tensors (/v2/systemsharedmemory)."
    )


class ConnectionSettings(BaseModel):
    """Connections."""

    max_connections: int = _row(
        1024,
        "connections",
        "Open connections of a process, idle ones go first, then 503; at most 5/8 of its files.",
        ge=1,
    )
    max_connections_per_peer: int = _row(
        256, "connections", "Open connections of one address, or IPv6 network; at most 3/4 of all.", ge=1
    )
    max_pipelined: int = _row(
        16, "requests", "Requests that may wait on one connection behind the one being answered; then 429.", ge=1
    )
    keep_alive_s: float = _row(15.0, "seconds", "How long a connection may stay open without a request.", gt=0)
    max_url_bytes: int = _row(8 * 1024, "bytes", "Longest URL of a request; then 414.", ge=256, le=2**20)
    max_header_bytes: int = _row(
        32 * 1024, "bytes", "Longest headers of a request, all together; then 431.", ge=1024, le=2**24
    )
    max_headers: int = _row(100, "headers", "Most headers of a request; then 431.", ge=10, le=10_000)
    header_timeout_s: float = _row(10.0, "seconds", "Time for the headers of a request to arrive; then 408.", gt=0)
    body_timeout_s: float = _row(
        60.0, "seconds", "Time for the body of a request to arrive; then 408, or before that 504.", gt=0
    )
    answer_timeout_s: float = _row(120.0, "seconds", "Time for a client to take its answer.", gt=0)
    min_bytes_per_s: int = _row(
        10_000, "bytes/s", "Slowest body, and slowest reader of an answer, after header_timeout_s.", ge=0
    )


class BodySettings(BaseModel):
    """Request sizes."""

    max_body_bytes: int = _row(64 * 2**20, "bytes", "Largest request body; an .npz counts unpacked as well.", ge=1)
    max_bytes_in_flight: int | None = _row(
        None, "bytes", "Memory that all requests together may take; unset: a quarter of what there is.", ge=1
    )
    max_elements: int = _row(16 * 2**20, "elements", "Largest tensor of a request.", ge=1)
    max_images: int = _row(32, "pictures", "Most pictures in one request.", ge=1)
    # Pillow refuses twice its own MAX_IMAGE_PIXELS whatever we say, so a larger limit would promise too much.
    max_pixels: int = _row(50_000_000, "pixels", "Largest picture, checked before decoding.", ge=1, le=178_956_970)


class AccessSettings(BaseModel):
    """Access."""

    cors_origins: tuple[str, ...] = _row(
        (), "origins", "Web origins that may call from a browser, by comma; * for all."
    )
    allowed_hosts: tuple[str, ...] = _row(
        (),
        "names",
        "Without keys: names the server is called by beside IP addresses and names without dots, by comma; "
        "*.example.org for all below, * for all.",
    )
    keys_file: Path | None = _row(
        None, "file", "Keys and what they open, a 'group: key' a line, or TOML; read again when it changes."
    )
    keys: SecretStr | None = _row(
        None, "keys", "The same, parted by semicolons; only in the environment. Neither: open to all who can connect."
    )
    tls_certificate: Path | None = _row(
        None, "file", "Certificate of the server with its chain, PEM; unset: HTTP without TLS."
    )
    tls_key: Path | None = _row(None, "file", "Its private key, PEM; unset: it is in the certificate's file.")
    tls_key_password: SecretStr | None = _row(None, "password", "What the private key is encrypted with.")
    tls_client_ca: Path | None = _row(
        None, "file", "Authorities of clients, PEM: who brings no certificate of theirs does not come in."
    )


class ObservabilitySettings(BaseModel):
    """Logs, metrics, traces."""

    metrics_histograms: Literal["used", "all", "none"] = _row(
        "used", "choice", "Whose histograms /metrics has: of models that had requests, of all models, or of none."
    )
    metrics_triton_names: bool = _row(
        False, "flag", "/metrics has the models' figures under Triton's names (nv_inference_*) as well."
    )
    otel: bool = _row(
        False, "flag", "Spans of requests go where the OTEL_* variables say; needs the extra [otel]; see operating.md."
    )
    access_log: bool = _row(False, "flag", "One log line per request, except for probes.")
    log_level: Literal["debug", "info", "warning", "error"] = _row(
        "info", "choice", "Least severe line that is logged."
    )
    log_format: Literal["text", "json"] = _row("text", "choice", "Shape of log lines.")


class Settings(
    StoreSettings,
    ModelsSettings,
    EngineSettings,
    QueueSettings,
    ServerSettings,
    ConnectionSettings,
    BodySettings,
    AccessSettings,
    ObservabilitySettings,
):
    """All sections in one. Immutable; build one with ``Settings()`` or ``Settings.from_env()``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    def store_folder(self) -> Path:
        """The folder of the models, also where they are fetched into it."""
        if isinstance(self.store, Remote):
            return stores_folder(self.store_dir, self.cache_dir) / self.store.key / "current"
        return self.store

    @property
    def has_keys(self) -> bool:
        """Whether requests need a key."""
        return self.keys is not None or self.keys_file is not None

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ, **overrides: object) -> Self:
        """Settings from PNNX_SERVE_* variables, else from the file one of them names; overrides that are not None win.

        Raises:
            SettingsError: for a variable or key that names no setting, a value out of its range, a file that is none.
        """
        values = read_variables(environ, cls.model_fields)
        file = values.pop(CONFIG, None)
        values.update({key: value for key, value in overrides.items() if value is not None})
        stored = {} if file is None else read_file(Path(file), cls.model_fields)
        stored = {key: value for key, value in stored.items() if key not in values}
        _check_flags(stored, cls)
        try:
            return cls.model_validate({name: _size(cls, name, value) for name, value in (stored | values).items()})
        except ValidationError as exc:
            raise SettingsError("; ".join(_problem(error, stored) for error in exc.errors())) from None


SECTIONS: Final = cast("tuple[type[BaseModel], ...]", Settings.__bases__)
"""The sections, in the order of the documentation."""


def _check_flags(stored: Mapping[str, Any], cls: type[BaseModel]) -> None:
    """A file has a type of its own for flags, which would pass for a number."""
    for name, value in stored.items():
        if isinstance(value, bool) and cls.model_fields[name].annotation is not bool:
            raise SettingsError(f"{name} (config): found {str(value).lower()}, expected no flag")


def _size(cls: type[BaseModel], name: str, value: Any) -> Any:
    """Return the number of bytes in a size such as ``64 GiB``; any other value unchanged."""
    if not isinstance(value, str) or cls.model_fields[name].json_schema_extra != {"unit": "bytes"}:
        return value
    size = parse_size(value)
    return value if size is None else size


def _problem(error: Any, stored: Mapping[str, Any]) -> str:
    name = str(error["loc"][0]) if error["loc"] else "settings"
    # An address may hold a password.
    is_secret = name in SECRETS or (name == "store" and "://" in str(error["input"]))
    reason = explain_validation(error)
    reason = reason.partition(", found ")[0] if is_secret else reason
    return f"{name} ({CONFIG if name in stored else variable(name)}): {reason}"
