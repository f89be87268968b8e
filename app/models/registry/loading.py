"""Loading of one version: from files to a model, or the reason of the failure."""

from __future__ import annotations

import logging
from typing import Final

import engine
from app.errors import ConfigError, ServiceError
from app.messages import safe_text
from app.models.folder.repository import ModelFiles, VersionFiles
from app.models.model import Model
from app.models.registry.loader_pool import LoadingStoppedError, Stop
from app.models.sessions import read_graph
from app.progress import compiling
from app.settings import Settings

log = logging.getLogger(__name__)

_MAX_WARNINGS: Final = 20


class LoadFailedError(Exception):
    """Version that cannot be served; the text is its public reason."""


def load_model(
    files: ModelFiles, version: VersionFiles, settings: Settings, threads: int, stop: Stop, *, verify: bool = False
) -> Model:
    """Build, compile and run a version once.

    Args:
        files: files of the model.
        version: files of the version.
        settings: settings of the server.
        threads: cores per run.
        stop: stop signal, checked between the steps.
        verify: whether to verify the checksums of the weights, because they have just been written.

    Raises:
        LoadFailedError: loading failed for any reason.
    """
    try:
        with engine.cancelling(stop.is_cancelled):
            return _load(files, version, settings, threads, stop, verify)
    except (engine.EngineError, ConfigError, ServiceError) as exc:
        raise LoadFailedError(safe_text(str(exc))) from exc
    except LoadingStoppedError as exc:
        raise LoadFailedError("loading was stopped") from exc
    except MemoryError as exc:
        raise LoadFailedError("there is not enough memory") from exc
    except RecursionError as exc:
        raise LoadFailedError("nested too deeply") from exc
    except BaseException as exc:  # a defect of ours, or a plug-in that tries to end the process
        log.exception("model '%s' version %d", files.name, version.number)
        raise LoadFailedError("internal error while loading; the server's log says more") from exc


def _load(
    files: ModelFiles, version: VersionFiles, settings: Settings, threads: int, stop: Stop, verify: bool
) -> Model:
    graph = read_graph(version, settings, strict=files.config.is_strict(settings.strict), verify=verify)
    _log_warnings(files.name, version.number, [str(warning) for warning in graph.warnings])
    stop.check()
    model = Model(
        files.name, graph, files.config, files.labels, threads=threads, settings=settings, warmup=version.warmup
    )
    stop.check()
    if settings.warmup:
        with compiling(files.name) as progress:
            model.warm_up(progress, stop.is_cancelled)
    if model.remark is not None and settings.strict_warmup:
        raise ConfigError(f"{model.remark} (strict_warmup)")
    stop.check()
    return model


def _log_warnings(name: str, number: int, warnings: list[str]) -> None:
    for warning in warnings[:_MAX_WARNINGS]:
        log.warning("model '%s' version %d: %s", name, number, safe_text(warning))
    if len(warnings) > _MAX_WARNINGS:
        log.warning("model '%s' version %d: and %d more warnings", name, number, len(warnings) - _MAX_WARNINGS)
