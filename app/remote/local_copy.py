"""Local files of a remote store, stored by content and published atomically; and rules for their names.

lock                held by the process that fetches; waiting processes reuse the result
index.json          served files with digests and tags, and the time of the last check
trees/DIGEST        a model's folder, or a file of the store itself; immutable
stores/DIGEST/NAME  links to those: one state of the store
current             link to the served state, replaced atomically

An unchanged model keeps its files, so it is not reloaded when another one changes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from app.errors import ConfigError
from app.messages import safe_text

MAX_FILES: Final = 20_000
_MAX_DEPTH: Final = 8
_MAX_PART: Final = 200
_MAX_PATH: Final = 1000


class SourceError(ConfigError):
    """Remote store that cannot be read or is invalid. The message never holds a credential."""


def check_name(path: str) -> str:
    """Return the path if it is valid: relative, with ``/``, without ``..``.

    Raises:
        SourceError: it is not.
    """
    parts = path.split("/")
    is_long = len(path.encode("utf-8", "surrogateescape")) > _MAX_PATH or len(parts) > _MAX_DEPTH
    if is_long or "\\" in path or not path.isprintable() or not all(map(_is_part, parts)):
        raise SourceError(f"the file name '{safe_text(path, 100)}' is not allowed in a store")
    return path


def check_all(paths: list[str]) -> None:
    """Raise unless the paths can be files of one folder.

    Raises:
        SourceError: there are too many, a duplicate, or one that is also a folder of another.
    """
    if len(paths) > MAX_FILES:
        raise SourceError(f"found {len(paths):,} files, expected at most {MAX_FILES:,}")
    seen: set[str] = set()
    for path in paths:
        if check_name(path) in seen:
            raise SourceError(f"the file '{safe_text(path, 100)}' occurs twice")
        seen.add(path)
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder:
            if folder in seen:
                raise SourceError(f"'{safe_text(folder, 100)}' is a file, and the folder of others")
            folder = folder.rpartition("/")[0]


def _is_part(part: str) -> bool:
    return part not in ("", ".", "..") and len(part.encode("utf-8", "surrogateescape")) <= _MAX_PART


_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """Stored file.

    Args:
        digest: SHA-256 of its bytes.
        size: size in bytes.
        tag: tag given by its source.
    """

    digest: str
    size: int
    tag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """State of a store.

    Args:
        stamp: identifier of the state at its source.
        files: files by path.
        state: name of the folder that holds it.
        checked: time of the last check (time.time()).
    """

    stamp: str
    state: str
    files: Mapping[str, StoredFile] = field(default_factory=dict)
    checked: float = 0.0


class LocalCopy:
    """Folder of one remote store.

    Raises:
        SourceError: it cannot be created, or other users may write to it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "current"
        self._incoming = folder / "incoming"
        self._trees = folder / "trees"
        self._stores = folder / "stores"
        try:
            for path in (folder.parent, folder, self._incoming, self._trees, self._stores):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.stat()
        except OSError as exc:
            raise SourceError(f"the folder for stores cannot be made ({exc.strerror}); see store_dir") from None
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
            raise SourceError("other users may write to the folder for stores; see store_dir")

    @contextmanager
    def locked(self, is_given_up: Callable[[], bool]) -> Iterator[None]:
        """Lock the folder against other processes.

        Raises:
            SourceError: waiting was cancelled.
        """
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _lock(descriptor):
                if is_given_up():
                    raise SourceError("another process was fetching the store and did not finish")
                time.sleep(_LOOK_S)
            yield
        finally:
            os.close(descriptor)

    def index(self) -> Index | None:
        """Return the index of the served state, or None."""
        try:
            data: dict[str, Any] = json.loads((self.folder / "index.json").read_bytes())
            files = {path: StoredFile(**kept) for path, kept in data.pop("files").items()}
            found = Index(**data, files=files)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        # an index of another state would name wrong files
        return found if self.store.is_dir() and self.store.resolve().name == found.state else None

    def write_index(self, index: Index) -> None:
        """Store the index of the served state."""
        text = json.dumps(asdict(index)).encode()
        _replace(self.folder / "index.json", text)

    def take(self, chunks: Iterable[bytes], limit: int) -> tuple[Path, StoredFile]:
        """Write chunks to a new file that is not served yet.

        Raises:
            SourceError: the limit is exceeded, or the disk is full.
        """
        path = self._incoming / secrets.token_hex(8)
        digest, size = hashlib.sha256(), 0
        try:
            with path.open("xb") as file:
                for chunk in chunks:
                    size += len(chunk)
                    if size > limit:
                        raise SourceError(
                            f"the store: found more than {limit:,} bytes, expected at most store_max_bytes"
                        )
                    digest.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
        except OSError as exc:
            raise SourceError(f"the fetched file cannot be stored: {exc.strerror}; see store_dir") from None
        return path, StoredFile(digest=digest.hexdigest(), size=size)

    def stored(self, path: str, index: Index | None, digest: str) -> Path | None:
        """Return the served file of a path if it still matches the index."""
        kept = None if index is None else index.files.get(path)
        file = self.store / path
        is_it = kept is not None and kept.digest == digest and file.is_file() and file.stat().st_size == kept.size
        return file if is_it else None

    def publish(self, stamp: str, files: Mapping[str, tuple[Path, StoredFile]]) -> None:
        """Publish exactly these files.

        Args:
            stamp: identifier of the state at its source.
            files: current locations by path in the store. Files from ``take`` are linked, others copied.

        Raises:
            SourceError: the disk is full.
        """
        try:
            self._publish(stamp, files)
        except OSError as exc:
            raise SourceError(f"the fetched files cannot be stored: {exc.strerror}; see store_dir") from None

    def _publish(self, stamp: str, files: Mapping[str, tuple[Path, StoredFile]]) -> None:
        models: dict[str, dict[str, tuple[Path, StoredFile]]] = {}
        for path, each in sorted(files.items()):
            name, _, rest = path.partition("/")
            models.setdefault(name, {})[rest] = each
        trees = {name: self._tree(inside) for name, inside in models.items()}
        state = self._stores / _digest(trees.items())
        if not state.is_dir():
            made = self._incoming / secrets.token_hex(8)
            made.mkdir()
            for name, tree in trees.items():
                (made / name).symlink_to(os.path.relpath(tree, self._stores / "x"))
            made.rename(state)
        link = self._incoming / secrets.token_hex(8)
        link.symlink_to(state.relative_to(self.folder))
        previous = self.store.resolve() if self.store.is_dir() else None
        link.rename(self.store)
        kept = {path: each for path, (_, each) in files.items()}
        self.write_index(Index(stamp=stamp, state=state.name, files=kept, checked=time.time()))
        self._sweep({state.name, *([] if previous is None else [previous.name])})

    def _tree(self, inside: Mapping[str, tuple[Path, StoredFile]]) -> Path:
        """Return the folder with these files; the file itself if it lies directly in the store."""
        tree = self._trees / _digest((rest, kept.digest) for rest, (_, kept) in inside.items())
        if tree.exists():
            return tree
        made = self._incoming / secrets.token_hex(8)
        for rest, (path, _) in inside.items():
            target = made / rest if rest else made
            target.parent.mkdir(parents=True, exist_ok=True)
            _place(path, target, is_ours=path.parent == self._incoming)
        made.rename(tree)
        return tree

    def _sweep(self, kept: set[str]) -> None:
        """Delete states and trees that belong neither to the served state nor to the previous one."""
        for state in self._stores.iterdir():
            if state.name not in kept:
                shutil.rmtree(state, ignore_errors=True)
        used = {path.resolve().name for state in self._stores.iterdir() for path in state.iterdir()}
        for tree in self._trees.iterdir():
            if tree.name not in used:
                _remove(tree)
        self.tidy()

    def tidy(self) -> None:
        """Delete fetched files that were not published."""
        for path in self._incoming.iterdir():
            _remove(path)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _digest(pairs: Iterable[tuple[str, object]]) -> str:
    return hashlib.sha256(repr(sorted((key, str(value)) for key, value in pairs)).encode()).hexdigest()[:40]


def _place(path: Path, target: Path, is_ours: bool) -> None:
    # Link instead of moving: the same bytes may be needed under two names.
    if is_ours:
        os.link(path, target)
    else:
        shutil.copyfile(path, target)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _replace(path: Path, data: bytes) -> None:
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    unfinished.write_bytes(data)
    unfinished.rename(path)
