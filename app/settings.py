"""Settings of the server by section, with default, unit and one line of help each.

A setting ``name`` is read from the environment variable ``PNNX_SERVE_NAME``, else from the file that
``PNNX_SERVE_CONFIG`` names. Unknown names are errors, so that a typing mistake cannot pass unnoticed. A test compares
docs/settings.md with this file. Nothing here imports numpy, because the number of threads must be set before that
(app/thread_limits.py).
"""

from __future__ import annotations

import logging
import os
import re
import tomllib
from collections.abc import Collection, Mapping
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
from app.messages import did_you_mean, explain_validation, parse_size, printable

log = logging.getLogger(__name__)

PREFIX: Final = "PNNX_SERVE_"
# Names the settings file; not a setting itself.
CONFIG: Final = "config"
# Settings with several values: comma-separated in a variable, a list in a file.
LISTS: Final = ("allowed_hosts", "cors_origins", "load_model", "passes_off", "plugins", "required")
# Settings of earlier versions, which are ignored with a warning.
REMOVED: Final = frozenset({"max_headers", "max_pipelined", "min_bytes_per_s", "retry_after_s"})
# Never in flags or the settings file, which other users of the machine may read; never echoed.
SECRETS: Final = ("keys", "tls_key_password")

# Kubernetes sets variables for each service of a namespace; for a service called pnnx-serve these are
# PNNX_SERVE_SERVICE_HOST, PNNX_SERVE_PORT_80_TCP, ... and PNNX_SERVE_PORT=tcp://10.0.0.1:80.
_SERVICE_LINK: Final = re.compile(r"PNNX_SERVE_(SERVICE_(HOST|PORT)\w*|PORT_\d+_\w+)")


class SettingsError(Exception):
    """A variable, argument or file is invalid."""


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.upper()


def read_variables(environ: Mapping[str, str], known: Collection[str]) -> dict[str, Any]:
    """Return the settings in the environment, and ``config`` if it names a settings file.

    Raises:
        SettingsError: a variable with the prefix names no setting.
    """
    values: dict[str, Any] = {}
    for key, text in environ.items():
        if not key.startswith(PREFIX) or _SERVICE_LINK.fullmatch(key) or text.startswith("tcp://"):
            continue
        name = key.removeprefix(PREFIX).lower()
        if _is_removed(name):
            continue
        if name not in known and name != CONFIG:
            hint = did_you_mean(key, map(variable, [*known, CONFIG]))
            raise SettingsError(f"unknown setting {key}{hint}")
        if text:
            values[name] = _split(name, text)
    return values


def read_file(path: Path, known: Collection[str]) -> dict[str, Any]:
    """Return the settings of a TOML file: ``port = 8000``, ``cors_origins = ["http://page"]``.

    Raises:
        SettingsError: the file cannot be read, is not TOML, or has an unknown setting or a secret.
    """
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except OSError as exc:
        raise SettingsError(f"config '{path}': {exc.strerror}") from None
    except ValueError as exc:  # not TOML, or not UTF-8
        raise SettingsError(f"config '{path}': {printable(str(exc))}") from None
    table = {name: value for name, value in table.items() if not _is_removed(name)}
    problems = [problem for name in table if (problem := _name_problem(name, known))]
    if problems:
        raise SettingsError(f"config '{path}': {'; '.join(problems)}")
    return {name: _split(name, value) for name, value in table.items()}


def _name_problem(name: str, known: Collection[str]) -> str | None:
    if name in SECRETS:
        return f"{name} is a secret, expected it in {variable(name)}"
    return None if name in known else f"unknown setting '{printable(name)}'{did_you_mean(name, known)}"


def _is_removed(name: str) -> bool:
    if name in REMOVED:
        log.warning("the setting %s does nothing any more, and the next version refuses it", name)
    return name in REMOVED


def _split(name: str, value: Any) -> Any:
    """Split comma-separated text of a setting with several values."""
    if name in LISTS and isinstance(value, str):
        return tuple(filter(None, map(str.strip, value.split(","))))
    return value


__all__ = ["PREFIX", "SECRETS", "SECTIONS", "Settings", "SettingsError", "variable"]


def _row(default: Any, unit: str, text: str, **limits: Any) -> Any:
    return Field(default, description=text, json_schema_extra={"unit": unit}, **limits)


class StoreSettings(BaseModel):
    """Store of models."""

    store: Annotated[Path | Remote, BeforeValidator(locate)] = _row(
        Path("model_store"),
        "folder",
        "Folder of models, or a remote address (s3://, gs://, https://), which needs the extra [remote].",
    )
    store_poll_s: float = _row(
        60.0, "seconds", "Interval between checks of a remote store for changes; 0: never.", ge=0
    )
    store_dir: Path | None = _row(
        None, "folder", "Local copy of a remote store; unset: 'stores' in the compile cache folder."
    )
    store_max_bytes: int = _row(64 * 2**30, "bytes", "Largest remote store, unpacked.", ge=1)
    model_name: str | None = _row(None, "name", "Serve the store folder as a single model of this name.")
    reload_interval_s: float = _row(
        2.0, "seconds", "Interval between checks of the store for new, changed and removed models; 0: never.", ge=0
    )
    model_control: Literal["poll", "explicit", "none"] = _row(
        "poll",
        "choice",
        "Models change by: poll (folder and load requests), explicit (load requests), none (start-up only).",
    )
    load_model: tuple[str, ...] = _row(
        (), "names", "Models to load at start-up, with commas; * for all. Needs model_control=explicit."
    )

    @field_validator("load_model")
    @classmethod
    def _check_load_model(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """Require explicit: only there does a list of models exclude the others."""
        control = info.data.get("model_control", "explicit")
        if names and control != "explicit":
            raise ValueError(f"found model_control {control}, expected explicit to load models by name")
        return names


class ModelsSettings(BaseModel):
    """Models."""

    default_model: str | None = _row(None, "name", "Model for requests that name none; not needed with a single model.")
    required: tuple[str, ...] = _row(
        (), "names", "Models that /health/ready waits for, with commas; unset: all models loaded at start-up."
    )
    warmup: bool = _row(True, "flag", "Run each model once before it becomes ready.")
    strict_warmup: bool = _row(
        False, "flag", "Fail models that cannot run on zeros; off: add a remark, unless no request could run."
    )
    strict: bool = _row(
        False, "flag", "Refuse models that contradict their file or lost something in the export; off: warn."
    )
    load_timeout_s: float = _row(300.0, "seconds", "Longest time to load a model; then it has failed.", gt=0)
    plugins: tuple[str, ...] = _row(
        (),
        "modules",
        "Python modules or .py files with custom operators, with commas; hooks.py allows hooks. Their code runs here.",
    )
    record_requests: int = _row(
        0,
        "requests",
        "Keep the inputs of the last requests of each version on disk, for 'quantize --recorded'; 0: keep none.",
        ge=0,
        le=10_000,
    )
    record_dir: Path | None = _row(
        None, "folder", "Folder of recorded requests; unset: 'recorded' in the compile cache folder."
    )
    record_max_bytes: int = _row(256 * 2**20, "bytes", "Most bytes of the recorded requests of a version.", ge=1)
    bundles: bool = _row(
        True,
        "flag",
        "Run machine code of bundles in the store; turn off if others can write to the store.",
    )


class EngineSettings(BaseModel):
    """Engine."""

    backend: Literal["auto", "compiled", "reference"] = _row(
        "auto",
        "choice",
        "auto: machine code, numpy where that is impossible; compiled: machine code only; reference: numpy only.",
    )
    threads: int | None = _row(
        None, "threads", "Most compute threads; unset: all cores that the process may use.", ge=1
    )
    winograd: Literal["auto", "off"] = _row(
        "auto", "choice", "off: no Winograd convolutions, which is slower and closer to the reference."
    )
    passes_off: tuple[str, ...] = _row((), "names", "Graph passes to skip, with commas; see passes.md.")
    cache: bool = _row(True, "flag", "Store compiled code on disk and reuse it.")
    cache_dir: Path | None = _row(
        None, "folder", "Folder of the compile cache; unset: pnnx-serve in the user's cache folder."
    )
    cache_max_bytes: int = _row(
        4 * 2**30, "bytes", "Size limit of the compile cache; the least recently used entry is evicted first.", ge=0
    )
    instances_max_bytes: int | None = _row(
        None,
        "bytes",
        "Memory for code of shapes met at run time, all models together; unset: a quarter of the memory.",
        ge=0,
    )
    verify_batches: bool = _row(
        False, "flag", "Debugging: repeat batches on the reference layers, log and count differences."
    )


class QueueSettings(BaseModel):
    """Queue and timeouts."""

    max_in_flight: int | None = _row(None, "runs", "Parallel runs of one model; unset: one, on all threads.", ge=1)
    max_queue: int = _row(64, "requests", "Most waiting requests of one model; beyond: 429.", ge=0)
    max_wait_s: float | None = _row(
        None,
        "seconds",
        "Longest expected wait in the queue; beyond: 429. Unset: 1 s, or any while at most 24 wait.",
        gt=0,
    )
    request_timeout_s: float = _row(30.0, "seconds", "Longest time to an answer, waiting included; then 504.", gt=0)


class ServerSettings(BaseModel):
    """Server."""

    host: str = _row("127.0.0.1", "address", "Address to listen on; 0.0.0.0: all interfaces.")
    port: int = _row(8000, "port", "Port to listen on; 0: chosen by the system.", ge=0, le=65535)
    grpc_port: int | None = _row(
        None, "port", "Port for gRPC; 0: chosen by the system. Needs the extra [grpc]; unset: no gRPC.", ge=0, le=65535
    )
    grpc_max_calls: int = _row(
        256,
        "calls",
        "Most open gRPC calls of a process, at most half of them streams; beyond: RESOURCE_EXHAUSTED.",
        ge=2,
    )
    workers: int = _row(
        1, "processes", "Server processes; more than one helps only if HTTP is the bottleneck.", ge=1, le=64
    )
    drain_delay_s: float = _row(
        0.0, "seconds", "Time from SIGTERM, not ready but serving, until the port closes; for load balancers.", ge=0
    )
    shutdown_timeout_s: float = _row(30.0, "seconds", "Longest time to finish requests at shutdown.", gt=0)
    shared_memory: bool = _row(
        False, "flag", "Let local clients register shared memory for tensors (/v2/systemsharedmemory)."
    )


class ConnectionSettings(BaseModel):
    """Connections."""

    max_connections: int = _row(
        1024,
        "connections",
        "Most open connections, at most 5/8 of the file descriptors; beyond: idle ones are closed, then 503.",
        ge=1,
    )
    max_connections_per_peer: int = _row(
        256, "connections", "Most open connections of one IPv4 address or IPv6 /64; at most 3/4 of all.", ge=1
    )
    keep_alive_s: float = _row(15.0, "seconds", "Longest idle time of a connection.", gt=0)
    max_url_bytes: int = _row(8 * 1024, "bytes", "Longest URL; beyond: 414.", ge=256, le=2**20)
    max_header_bytes: int = _row(
        32 * 1024, "bytes", "Largest total size of the headers of a request; beyond: 431.", ge=1024, le=2**24
    )
    header_timeout_s: float = _row(10.0, "seconds", "Longest time to receive headers; then 408.", gt=0)
    body_timeout_s: float = _row(
        60.0, "seconds", "Longest time to receive a body; then 408, or 504 if the deadline passes first.", gt=0
    )
    answer_timeout_s: float = _row(120.0, "seconds", "Longest time to send an answer.", gt=0)


class BodySettings(BaseModel):
    """Request sizes."""

    max_body_bytes: int = _row(64 * 2**20, "bytes", "Largest request body; for .npz also its unpacked size.", ge=1)
    max_bytes_in_flight: int | None = _row(
        None, "bytes", "Memory for all requests together; unset: a quarter of the memory.", ge=1
    )
    max_elements: int = _row(16 * 2**20, "elements", "Largest tensor of a request.", ge=1)
    max_images: int = _row(32, "pictures", "Most images in one request.", ge=1)
    max_sound_s: float = _row(600.0, "seconds", "Longest sound, checked before decoding.", gt=0, le=86_400)
    # Pillow always refuses twice its own MAX_IMAGE_PIXELS, so a larger limit would have no effect.
    max_pixels: int = _row(50_000_000, "pixels", "Largest image, checked before decoding.", ge=1, le=178_956_970)


class AccessSettings(BaseModel):
    """Access."""

    cors_origins: tuple[str, ...] = _row(
        (), "origins", "Web origins whose pages may send requests (CORS), with commas; * for all."
    )
    allowed_hosts: tuple[str, ...] = _row(
        (),
        "names",
        "Without keys: host names with dots that are accepted, with commas; *.example.org, or * for all.",
    )
    keys_file: Path | None = _row(
        None, "file", "File of keys, a line 'group: key' each, or TOML; read again when it changes."
    )
    keys: SecretStr | None = _row(
        None, "keys", "Keys as in keys_file, with semicolons; environment only. Neither: open to all clients."
    )
    tls_certificate: Path | None = _row(None, "file", "Certificate chain of the server, PEM; unset: HTTP without TLS.")
    tls_key: Path | None = _row(None, "file", "Private key, PEM; unset: in the file of tls_certificate.")
    tls_key_password: SecretStr | None = _row(None, "password", "Password of the private key.")
    tls_client_ca: Path | None = _row(
        None, "file", "Certificate authorities for client certificates, PEM; set: clients without one are refused."
    )


class ObservabilitySettings(BaseModel):
    """Logs, metrics, traces."""

    metrics_histograms: Literal["used", "all", "none"] = _row(
        "used", "choice", "Histograms in /metrics: of models that had requests, of all models, or none."
    )
    metrics_triton_names: bool = _row(False, "flag", "Add Triton's metric names (nv_inference_*) to /metrics.")
    otel: bool = _row(
        False,
        "flag",
        "Send OpenTelemetry traces as the OTEL_* variables say; needs the extra [otel]; see operating.md.",
    )
    access_log: bool = _row(False, "flag", "Log one line for each request except probes.")
    log_level: Literal["debug", "info", "warning", "error"] = _row("info", "choice", "Lowest level that is logged.")
    log_format: Literal["text", "json"] = _row("text", "choice", "Format of log lines.")


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
    """Immutable settings of all sections, created by ``Settings()`` or ``Settings.from_env()``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    def store_folder(self) -> Path:
        """Return the folder of the models; for a remote store, the folder of its local copy."""
        if isinstance(self.store, Remote):
            return stores_folder(self.store_dir, self.cache_dir) / self.store.key / "current"
        return self.store

    @property
    def has_keys(self) -> bool:
        """Return whether requests need a key."""
        return self.keys is not None or self.keys_file is not None

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ, **overrides: object) -> Self:
        """Return settings from PNNX_SERVE_* variables, else from the file; overrides that are not None win.

        Raises:
            SettingsError: an unknown variable or key, a value out of range, or an unreadable file.
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
"""Sections in the order of docs/settings.md."""


def _check_flags(stored: Mapping[str, Any], cls: type[BaseModel]) -> None:
    """Refuse TOML booleans for other settings: Python would take them for numbers."""
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
