"""``pnnx-serve compile``: fill the cache, so that no later start has to compile."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from app.cli.arguments.numbers import positive
from app.cli.arguments.options import MODEL_HELP, add_setting, read_settings
from app.progress import compiling

if TYPE_CHECKING:
    from app.models.repository import ModelFiles, VersionFiles
    from app.settings import Settings

SUMMARY: Final = "compile models ahead of time, for later starts"
EXAMPLES: Final = """  pnnx-serve compile digits
  pnnx-serve compile resnet18.pnnx.param --batch 1 8
  pnnx-serve compile digits shapes --cache-dir /var/cache/pnnx-serve

All versions of a model of the store are compiled. The settings that decide what is compiled (--winograd, --passes-off)
must be those of the server that is to find it; the number of threads may differ.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Which models, for which batches, where to."""
    parser.add_argument("model", nargs="+", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument(
        "--batch", nargs="+", type=positive, default=[None], metavar="N", help="batch sizes. Default: the exported one."
    )
    parser.add_argument("--force", action="store_true", help="compile what is in the cache as well, and replace it")
    for name in ("store", "plugins", "threads", "winograd", "passes_off", "cache_dir", "cache_max_bytes"):
        add_setting(parser, name)


def execute(args: argparse.Namespace) -> int:
    """A line for each model and batch; 1 when one of them should be in the cache afterwards and is not."""
    settings = read_settings(args).model_copy(update={"backend": "compiled", "cache": True})
    import engine  # imports numpy, and so do these
    from app.cli.arguments import models
    from app.errors import ConfigError, ServiceError
    from app.render.wording import printable

    failed = False
    for name in args.model:
        try:
            files = models.find(name, settings)
            for made, text in _compile(files, args, settings):
                failed |= not made
                print(printable(text), flush=True)
        except (engine.EngineError, ConfigError, ServiceError) as exc:
            failed = True
            print(printable(f"{name}: error: {exc}"), file=sys.stderr)
    return int(failed)


def _compile(files: ModelFiles, args: argparse.Namespace, settings: Settings) -> Iterator[tuple[bool, str]]:
    """What was done for every version and batch, and whether that is all that can be done."""
    from app.cli.arguments import models

    models.newest(files)  # a folder that is not what it should be is refused here
    for version in files.versions:
        label = f"{files.name} version {version.number}" if len(files.versions) > 1 else files.name
        yield from _batches(label, files, version, args, settings)


def _batches(
    label: str, files: ModelFiles, version: VersionFiles, args: argparse.Namespace, settings: Settings
) -> Iterator[tuple[bool, str]]:
    from app.cli.arguments import models

    model = models.prepare(files, models.load(version), settings)
    for batch in args.batch:
        about = label if batch is None else f"{label} · batch {batch}"
        with compiling(about) as show:
            made = model.compile(batch, refresh=args.force, progress=show)
        if made is None:
            yield True, f"{about} · nothing to do ahead: the sizes of its inputs are open until a request brings them"
        else:
            yield made["entry_bytes"] > 0, f"{about} · {_outcome(made)}"


def _outcome(made: dict[str, Any]) -> str:
    from app.render.wording import count_text, time_text

    time = time_text(made["compile_ms"] * 1e3)
    parts = [f"found in the cache, loaded in {time}" if made["is_cached"] else f"compiled in {time}"]
    parts.append(count_text(made["entry_bytes"], "B") if made["entry_bytes"] else "not kept: the cache takes nothing")
    parts.append(_count(made["kernels"], "kernel"))
    if made["fallbacks"]:
        parts.append(f"{_count(made['fallbacks'], 'operator')} on the reference")
    return " · ".join(parts)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
