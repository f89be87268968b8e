"""Writing bundles: the graph's pair of files first, then programs compiled from the written pair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from engine import pnnx
from engine.bundle import MANIFEST, PARAM, WEIGHTS, HostClass, Manifest, ProgramFile, open_bundle
from engine.bundle import oci as layouts
from engine.bundle.writing import new_file, new_folder, stated_files, write_manifest
from engine.cancellation import Progress, silent
from engine.compiler.builder import Builder
from engine.compiler.bundling.admission import class_of, engine_version
from engine.compiler.cache import entry
from engine.compiler.cache.version import SOURCES, is_unchanged
from engine.compiler.codegen.host import Host, describe
from engine.compiler.measuring.record import this_host
from engine.errors import BundleError
from engine.graph import RuntimeGraph
from engine.memory.resources import available_cores
from engine.options import Options
from engine.tensor import TensorSpec


class BundleWriter:
    """Writer of a bundle's folder.

    Args:
        place: the folder, empty.
        source: the graph to bundle.
        name: of the model.
        files: content of further files, by name.
        target: level to generate code for, which then runs on all its machines; None for machines such as this one.

    Attributes:
        graph: as read from the bundle; programs are compiled from it.
        host: the host they are compiled for.

    Raises:
        BundleError: the engine's sources changed since they were imported, or a file name is not valid.
        CompileError: the level is unknown.
    """

    def __init__(
        self,
        place: Path,
        source: RuntimeGraph,
        options: Options,
        name: str,
        files: Mapping[str, bytes],
        target: str | None,
    ) -> None:
        if not is_unchanged():
            raise BundleError("the engine's sources changed after this process imported them; restart it")
        self.host: Host = this_host(options) if target is None else describe(target)
        self._place = place
        self._options = options
        pnnx.write(source.source, place / PARAM, place / WEIGHTS)
        for each, content in files.items():
            with new_file(place, each) as file:
                file.write(content)
        known = class_of(self.host.name, is_portable=target is not None)
        self._manifest = _empty(name, known, place)
        write_manifest(place, self._manifest.print())
        self.graph = RuntimeGraph.from_bundle(open_bundle(place))
        self.graph.build()
        self._programs: dict[str, ProgramFile] = {}

    def add(self, graph: RuntimeGraph, specs: Sequence[TensorSpec], progress: Progress = silent) -> ProgramFile:
        """Compile a program for inputs of these shapes.

        Args:
            graph: of this bundle, or derived from it for other batch sizes.

        Raises:
            RunCancelledError, CompileError, EngineError: see ``Builder.program``.
        """
        builder = Builder(graph, self._options, self.host)
        if builder.carried is None:
            raise BundleError("the graph does not belong to this bundle")
        key = builder.carried.key(specs)
        if key not in self._programs:
            executable = builder.executable(specs, progress, available_cores())
            inputs = tuple((tuple(dim or 0 for dim in spec.shape), spec.dtype.name) for spec in specs)
            self._programs[key] = ProgramFile(key=key, inputs=inputs)
            with new_file(self._place, self._programs[key].file) as file:
                entry.write(file, key, executable)
        return self._programs[key]

    def finish(self) -> Manifest:
        """Write the final manifest and return it."""
        manifest = replace(self._manifest, programs=tuple(self._programs.values()), files=stated_files(self._place))
        write_manifest(self._place, manifest.print())
        return manifest


def _empty(model: str, host: HostClass, place: Path) -> Manifest:
    files = stated_files(place)
    return Manifest(model=model, engine=engine_version(), sources=SOURCES, host=host, programs=(), files=files)


@contextmanager
def place_for(target: Path, *, tag: str | None, replace: bool) -> Iterator[Path]:
    """Yield a temporary folder to write a bundle into; it gets its name when the block ends without an error.

    Args:
        tag: of the image, to write an OCI layout; None to write the plain folder.

    Raises:
        BundleError: the target exists and may not be replaced, or the system refuses.
    """
    if tag is not None:
        layouts.check_tag(tag)
    mark = MANIFEST if tag is None else layouts.LAYOUT
    with new_folder(target, marks=(mark,), replace=replace) as place:
        if tag is None:
            yield place
            return
        inside = place / "bundle"
        inside.mkdir(0o755)
        yield inside
        layouts.lay_out(inside, place, tag)
