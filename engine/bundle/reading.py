"""Reading a bundle's folder: each file is verified against the manifest before it is used.

A bundle holds machine code, so it is trusted like a program: folder and files belong to this user or root, and no other
user may write to them. Files are opened relative to the folder, links are not followed, and contents are copied before
they are hashed: later changes to the files have no effect.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from engine.bundle import manifest as manifests
from engine.bundle.manifest import MANIFEST, PARAM, WEIGHTS, Manifest, StatedFile
from engine.cancellation import check_cancelled
from engine.errors import BundleError
from engine.memory.blocks import TornError, read_block
from engine.memory.files import check_unshared, file_name, open_regular, reason
from engine.memory.resources import available_cores, total_memory_bytes
from engine.memory.shared_blocks import shared
from engine.pnnx.files import take_open
from engine.tensor import Array

_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NONBLOCK
_PIECE_BYTES: Final = 1 << 20


@dataclass(slots=True, kw_only=True, eq=False)
class Bundle:
    """A bundle that was read.

    Args:
        folder: path; further programs are read from it on demand and verified against the manifest.
        text, weights: content of the ``.param`` and the ``.bin`` file.
        ready: programs that were already read, by file name.
    """

    folder: Path
    manifest: Manifest
    text: bytes
    weights: Array
    ready: dict[str, Array] = field(default_factory=dict)

    def program(self, key: str) -> Array | None:
        """Return the content of a program's file, or None if there is none; the caller owns it.

        Raises:
            BundleError: the file changed since the bundle was written.
        """
        name = next((each.file for each in self.manifest.programs if each.key == key), None)
        if name is None:
            return None
        found = self.ready.pop(name, None)
        if found is not None:
            return found
        with _opened(self.folder) as place:
            return _read(place, name, self.manifest.files[name])

    def place_of(self, data: Array) -> str | None:
        """Return the hash of the weights file, offset and length of an array inside it; None for any other array."""
        if not data.flags.c_contiguous:
            return None
        begin = data.__array_interface__["data"][0] - self.weights.__array_interface__["data"][0]
        if not 0 <= begin <= begin + data.nbytes <= self.weights.nbytes:
            return None
        return f"{self.manifest.files[WEIGHTS].sha256} {begin} {data.nbytes}"


def is_bundle(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a bundle: a folder with a manifest."""
    return os.path.lexists(os.path.join(path, MANIFEST))


def open_bundle(path: str | os.PathLike[str], admit: Callable[[Manifest], object] = lambda _: None) -> Bundle:
    """Read a bundle: keep the pair and the first program, verify the other files.

    Args:
        admit: raises if the manifest is not acceptable; called while the files are read.

    Raises:
        BundleError: a file is missing, truncated, altered, a link or owned by another user, or ``admit`` raised it.
    """
    with _opened(path) as place:
        manifest = manifests.parse(_read_manifest(place))
        first = {each.file for each in manifest.programs[:1]}
        folder = os.path.realpath(path)

        def take(name: str) -> Array | None:
            stated = manifest.files[name]
            if name == WEIGHTS:
                return _take(place, folder, name, stated)
            if name == PARAM or name in first:
                return _read(place, name, stated)
            _verify(place, name, stated)
            return None

        # Largest first: they take most of the time.
        names = sorted(manifest.files, key=lambda name: -manifest.files[name].bytes)
        with ThreadPoolExecutor(min(4, available_cores())) as pool:
            # Each thread sees the caller's cancellation token.
            contexts = [copy_context() for _ in names]
            taking = pool.map(lambda context, name: context.run(take, name), contexts, names)
            try:
                admit(manifest)
                taken = dict(zip(names, taking, strict=True))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    known = {name: block for name, block in taken.items() if block is not None}
    return Bundle(
        folder=Path(path),
        manifest=manifest,
        text=known[PARAM].tobytes(),
        weights=shared(known[WEIGHTS]),
        ready={name: known[name] for name in first},
    )


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[int]:
    """Open the folder while the block runs, as a descriptor."""
    try:
        descriptor = os.open(path, _FLAGS)
    except (OSError, ValueError) as error:
        raise BundleError("the folder cannot be opened", where=file_name(path), found=reason(error)) from None
    try:
        status = os.fstat(descriptor)
        with _trusted(file_name(path)):
            check_unshared(status)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _trusted(name: str) -> Iterator[None]:
    """Turn a PermissionError into a BundleError: a user who can write to a bundle decides what code runs."""
    try:
        yield
    except PermissionError as error:
        expected = "a file of this user or root that other users cannot write to, because its code is run"
        raise BundleError("not trusted", where=name, found=error.strerror, expected=expected) from None


@contextmanager
def _file(place: int, name: str) -> Iterator[int]:
    """Open a file of the folder while the block runs, as a descriptor."""
    try:
        descriptor = open_regular(name, follow=False, folder=place)
        try:
            with _trusted(name):
                check_unshared(os.fstat(descriptor))
            yield descriptor
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise BundleError("the file is missing", where=name) from None
    except TornError:
        raise BundleError("the file was truncated while it was read", where=name) from None
    except (OSError, ValueError) as error:
        raise BundleError("the file cannot be read", where=name, found=reason(error)) from None


def _read_manifest(place: int) -> bytes:
    with _file(place, MANIFEST) as descriptor:
        size = os.fstat(descriptor).st_size
        if size > manifests.MAX_BYTES:
            found, expected = f"{size:,} bytes", f"at most {manifests.MAX_BYTES:,}"
            raise BundleError("the file is too large", where=MANIFEST, found=found, expected=expected)
        return read_block(descriptor, size).tobytes()


def _read(place: int, name: str, stated: StatedFile) -> Array:
    """Read a file into memory and verify it."""
    with _file(place, name) as descriptor:
        _check_size(descriptor, name, stated)
        block = read_block(descriptor, stated.bytes)
        _check_hash(hashlib.sha256(block.data).hexdigest(), name, stated)
        return block


def _take(place: int, folder: str, name: str, stated: StatedFile) -> Array:
    """Read a file that need not stay in memory: reflinked or copied into an unnamed file where possible."""
    with _file(place, name) as descriptor:
        _check_size(descriptor, name, stated)
        block = take_open(descriptor, folder, stated.bytes)
        _check_hash(hashlib.sha256(block.data).hexdigest(), name, stated)
        return block


def _verify(place: int, name: str, stated: StatedFile) -> None:
    """Verify a file that is not needed yet."""
    with _file(place, name) as descriptor:
        _check_size(descriptor, name, stated)
        state, at = hashlib.sha256(), 0
        while piece := os.pread(descriptor, _PIECE_BYTES, at):
            check_cancelled()
            state.update(piece)
            at += len(piece)
        _check_hash(state.hexdigest(), name, stated)


def _check_size(descriptor: int, name: str, stated: StatedFile) -> None:
    size, most = os.fstat(descriptor).st_size, total_memory_bytes()
    if size > most:  # a sparse file, perhaps: reading it would not end
        expected = f"at most {most:,}, the memory of this machine"
        raise BundleError("the file is too large", where=name, found=f"{size:,} bytes", expected=expected)
    if size != stated.bytes:
        problem = "the file is truncated" if size < stated.bytes else "the file is too long"
        raise BundleError(problem, where=name, found=f"{size:,} bytes", expected=f"{stated.bytes:,}")


def _check_hash(found: str, name: str, stated: StatedFile) -> None:
    if found != stated.sha256:
        problem = "the file is not the one that was bundled"
        raise BundleError(problem, where=name, found=f"sha256 {found}", expected=stated.sha256)
