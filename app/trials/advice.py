"""What to write down so that a model runs in a certain way: its config, the server's settings, a command to see it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from app.settings import Settings, variable
from app.trials.candidates import Candidate


def advice(
    candidate: Candidate, name: str, settings: Settings, threads: int, shapes: Sequence[Sequence[int]] = ()
) -> dict[str, str]:
    """``config`` for the model's config.toml, ``settings`` for the server's environment, ``command`` for a shell.

    Args:
        threads: that the server may use.
        shapes: of one item of each input, where the model leaves them open.
    """
    return {
        "config": "\n".join(_config(candidate, threads)),
        "settings": "\n".join(_settings(candidate, settings)),
        "command": shlex.join(_command(candidate, name, shapes)),
    }


def _config(candidate: Candidate, threads: int) -> Iterator[str]:
    build = candidate.build
    if build.backend == "compiled" and build.threads != threads:
        yield f"threads = {build.threads}"
    yield "[batching]"
    if candidate.batch == 1:
        yield "enabled = false"
    else:
        yield "enabled = true"
        yield f"max_batch_size = {candidate.batch}"


def _settings(candidate: Candidate, settings: Settings) -> Iterator[str]:
    """Only what is not so already: these hold for all models of the server."""
    build = candidate.build
    if build.backend == "reference":
        if settings.backend != "reference":
            yield f"{variable('backend')}=reference"
        return
    if settings.backend == "reference":
        yield f"{variable('backend')}=auto"
    if build.winograd != settings.winograd:
        yield f"{variable('winograd')}={build.winograd}"
    if set(build.passes_off) != set(settings.passes_off):
        yield f"{variable('passes_off')}={','.join(build.passes_off)}"


def _command(candidate: Candidate, name: str, shapes: Sequence[Sequence[int]]) -> Sequence[str]:
    build = candidate.build
    words = ["pnnx-serve", "bench", name]
    for shape in shapes:
        words += ["--shape", ",".join(map(str, (candidate.batch, *shape[1:])))]
    if candidate.batch != 1 and not shapes:
        words += ["--batch", str(candidate.batch)]
    if build.backend == "reference":
        return [*words, "--backend", "reference"]
    words += ["--threads", str(build.threads)]
    if build.winograd == "off":
        words += ["--winograd", "off"]
    if build.passes_off:
        words += ["--passes-off", ",".join(build.passes_off)]
    return [*words, "--tune"] if build.tune else words
