"""Compilation of IR text to object code, and loading of object code: the only module that drives LLVM."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

from engine.compiler.codegen.host import Host, import_llvm
from engine.compiler.codegen.loader import Block, UnsupportedObjectError, names_of
from engine.compiler.codegen.memory_release import release_unused
from engine.errors import CompileError

# Most bytes of cached object code: graphs share kernels, and all programs the step loop.
KEPT_BYTES: Final = 64 << 20

_loaded: Final[WeakValueDictionary[tuple[str, tuple[bytes, ...]], Code]] = WeakValueDictionary()
_ready = threading.Lock()
_is_ready = False
_has_worked = False


class _ThreadState(threading.local):
    """Code generators of one thread, by triple, CPU and features."""

    def __init__(self) -> None:
        self.machines: dict[tuple[str, str, str], Any] = {}


_thread_state: Final = _ThreadState()


def _llvm() -> Any:
    """Return LLVM, initialised on first use: a start from the cache needs none of it."""
    global _is_ready, _has_worked
    llvm = import_llvm()
    with _ready:
        _has_worked = True
        if not _is_ready:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
            _is_ready = True
    return llvm


def release_memory() -> None:
    """Release the memory that LLVM has left behind, if it has been used since the last call."""
    global _has_worked
    with _ready:
        is_due, _has_worked = _has_worked, False
    _thread_state.machines.clear()
    if is_due:
        release_unused()


def target_machine(host: Host) -> Any:
    """Return LLVM's code generator for a host, one a thread: creating it takes a while."""
    key = host.triple, host.cpu, host.features
    if key not in _thread_state.machines:
        _thread_state.machines[key] = _new_machine(host)
    return _thread_state.machines[key]


def _new_machine(host: Host) -> Any:
    target = _llvm().Target.from_triple(host.triple)
    return target.create_target_machine(cpu=host.cpu, features=host.features, opt=2, reloc="pic", codemodel="small")


def assemble(text: str, host: Host) -> bytes:
    """Return the object code of a module, cached in this process.

    Raises:
        CompileError: LLVM rejects the text; a defect of a kernel generator.
    """
    key = hashlib.sha256(f"{host.key}\n{text}".encode()).digest()
    known = _object_cache.get(key)
    if known is not None:
        return known
    machine = target_machine(host)
    code: bytes = machine.emit_object(_parse(text, host, machine))
    _object_cache.keep(key, code)
    return code


class _ObjectCache:
    """LRU cache of object code by the hash of its text."""

    def __init__(self) -> None:
        self._codes: OrderedDict[bytes, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: bytes) -> bytes | None:
        """Return the code, or None."""
        with self._lock:
            if key in self._codes:
                self._codes.move_to_end(key)
            return self._codes.get(key)

    def keep(self, key: bytes, code: bytes) -> None:
        """Add code and evict what no longer fits."""
        with self._lock:
            if key not in self._codes:
                self._codes[key] = code
                self._bytes += len(code)
            while self._bytes > KEPT_BYTES:
                self._bytes -= len(self._codes.popitem(last=False)[1])


_object_cache = _ObjectCache()


def assembly(text: str, host: Host) -> str:
    """Return the assembly language of a module, for people to read.

    Raises:
        CompileError: LLVM rejects the text.
    """
    machine = target_machine(host)
    code: str = machine.emit_assembly(_parse(text, host, machine))
    return code


def _parse(text: str, host: Host, machine: Any) -> Any:
    """Return IR text as LLVM's verified module. No optimisation pass runs: generators emit final code."""
    llvm = _llvm()
    try:
        module = llvm.parse_assembly(f'target triple = "{host.triple}"\n{text}', context=llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"generated code is not valid: {error}") from None
    module.triple = host.triple
    module.data_layout = str(machine.target_data)
    return module


class Code:
    """Loaded object code; its memory lives as long as this object.

    Attributes:
        bytes: of the objects.

    Raises:
        CompileError: it is damaged, calls an unknown function, or memory cannot be allocated.
    """

    def __init__(self, objects: Sequence[bytes], host: Host) -> None:
        self.bytes = sum(map(len, objects))
        self._block: Block | None = None
        try:
            self._block = Block(objects)
        except UnsupportedObjectError:
            self._load(objects, host)

    def _load(self, objects: Sequence[bytes], host: Host) -> None:
        llvm = _llvm()
        backing = llvm.parse_assembly(f'target triple = "{host.triple}"')
        self._engine = llvm.create_mcjit_compiler(backing, _new_machine(host))
        for each in objects:
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(each))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Return the address of a function."""
        found = self._block.address(name) if self._block else int(self._engine.get_function_address(name))
        if not found:
            raise CompileError("the object code does not define the function", found=name)
        return found


class SharedObjects:
    """Loaded objects, each of which other programs may share.

    Attributes:
        bytes: of objects that were not loaded before.
    """

    def __init__(self, groups: Sequence[Sequence[bytes]], host: Host) -> None:
        self.bytes = 0
        self._codes: dict[str, Code] = {}
        for group in groups:
            code, is_new = _shared(group, host)
            self.bytes += code.bytes if is_new else 0
            self._codes.update(dict.fromkeys((name for each in group for name in names_of(each)[0]), code))

    def address(self, name: str) -> int:
        """Return the address of a function."""
        if name not in self._codes:
            raise CompileError("the object code does not define the function", found=name)
        return self._codes[name].address(name)


def load(objects: Sequence[bytes], host: Host, *, is_apart: bool = False) -> Code | SharedObjects:
    """Load object code; objects already in memory are shared.

    Args:
        is_apart: whether other programs use other subsets of these objects, as those of other shapes do: then each
            object is shared separately, unless it calls another one.

    Raises:
        CompileError: as for ``Code``.
    """
    try:
        calls = [names_of(each) for each in objects] if is_apart else []
    except CompileError:  # a format that only LLVM can load
        calls = []
    if not calls:
        return _shared(objects, host)[0]
    wanted = frozenset().union(*(names for _, names in calls))
    defined = frozenset().union(*(names for names, _ in calls))
    is_single = [not (own & wanted or others & defined) for own, others in calls]
    together = [each for each, single in zip(objects, is_single, strict=True) if not single]
    alone = [(each,) for each, single in zip(objects, is_single, strict=True) if single]
    return SharedObjects([*alone, together] if together else alone, host)


def _shared(objects: Sequence[bytes], host: Host) -> tuple[Code, bool]:
    """Return the code of some objects, and whether it had to be loaded."""
    key = host.triple, tuple(objects)
    code = _loaded.get(key)
    if code is not None:
        return code, False
    code = _loaded[key] = Code(objects, host)
    return code, True
