"""Writing bundles: the graph's pair of files first, then programs compiled from the written pair."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from engine import pnnx
from engine.bundle import MANIFEST, PARAM, WEIGHTS, HostClass, Manifest, ProgramFile, StatedFile, open_bundle
from engine.bundle import oci as layouts
from engine.bundle.manifest import is_plain_name
from engine.cancellation import Progress, silent
from engine.compiler.builder import Builder
from engine.compiler.bundling.programs import class_of, engine_version
from engine.compiler.cache import entry
from engine.compiler.cache.version import SOURCES, is_unchanged
from engine.compiler.codegen.host import Host, describe
from engine.compiler.measuring.record import this_host
from engine.errors import BundleError
from engine.graph import RuntimeGraph
from engine.memory.files import OTHERS_WRITE, reason
from engine.memory.resources import available_cores
from engine.options import Options
from engine.tensor import TensorSpec

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def new_folder(target: Path, *, marks: tuple[str, ...], replace: bool) -> Iterator[Path]:
    """Yield a temporary folder to fill; it gets its name when the block ends without an error.

    Args:
        marks: files by which an existing folder is recognised as a bundle.
        replace: whether an existing bundle may be replaced.

    Raises:
        BundleError: the target exists and may not be replaced, or the system refuses.
    """
    try:
        _check_place(target, marks, replace)
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = _unfinished_path(target)
        unfinished.mkdir(0o755)
    except OSError as error:
        raise BundleError("the folder cannot be made", where=target.name, found=reason(error)) from None
    try:
        yield unfinished
        _put(unfinished, target)
    except OSError as error:
        raise BundleError("the bundle cannot be written", where=target.name, found=reason(error)) from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _check_place(target: Path, marks: tuple[str, ...], replace: bool) -> None:
    if not os.path.lexists(target) or (target.is_dir() and not any(target.iterdir())):
        return
    if not any((target / mark).is_file() for mark in marks):
        raise BundleError("the target exists", where=target.name, expected="no folder, an empty one or a bundle")
    if not replace:
        raise BundleError("the bundle exists already", where=target.name, expected="permission to replace it (--force)")


def _put(unfinished: Path, target: Path) -> None:
    """Rename a folder to its target, and remove the folder that had the name before."""
    before = _unfinished_path(target) if target.is_dir() and any(target.iterdir()) else None
    if before is not None:
        os.rename(target, before)
    try:
        os.rename(unfinished, target)
    except BaseException:
        if before is not None:
            os.rename(before, target)
        raise
    if before is not None:
        shutil.rmtree(before, ignore_errors=True)


def _unfinished_path(target: Path) -> Path:
    return target.parent / f".{target.name}.{secrets.token_hex(4)}.unfinished"


@contextmanager
def new_file(folder: Path, name: str) -> Iterator[Any]:
    """Open a new file of a folder for writing.

    Raises:
        BundleError: the name is not valid.
    """
    if not is_plain_name(name) or name == MANIFEST:
        raise BundleError("not a valid name for a file of a bundle", where=name[:80])
    with _created(folder / name) as file:
        yield file


def write_manifest(folder: Path, content: bytes) -> None:
    """Write the manifest, replacing an earlier one."""
    with suppress(FileNotFoundError):
        os.unlink(folder / MANIFEST)
    with _created(folder / MANIFEST) as file:
        file.write(content)


@contextmanager
def _created(path: Path) -> Iterator[Any]:
    with open(os.open(path, _FLAGS, 0o644), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def stated_files(folder: Path) -> dict[str, StatedFile]:
    """Return size and hash of all files but the manifest, after removing write permission for other users."""
    found: dict[str, StatedFile] = {}
    for path in sorted(folder.iterdir()):
        path.chmod(path.stat().st_mode & 0o777 & ~OTHERS_WRITE)
        if path.name != MANIFEST:
            found[path.name] = StatedFile(path.stat().st_size, hash_file(path))
    return found


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
