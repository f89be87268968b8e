"""Object code runs as if LLVM had loaded it, and invalid object code is rejected."""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine import CompileError
from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import describe, detect, import_llvm
from engine.compiler.codegen.ir import Module
from engine.compiler.codegen.loader import Block, ObjectFile, UnsupportedObjectError

ROOT = Path(__file__).parents[4]
HOST = detect()
pytestmark = pytest.mark.skipif(HOST.name == "neon", reason="LLVM loads code of other processors")


def assembled(text: str) -> bytes:
    return object_code.assemble(text, HOST)


def scaling() -> bytes:
    """Return ``scale(values)``: eight floats times constants that do not fit an instruction."""
    module = Module()
    f = module.function("scale", [("ptr", "values")])
    for k in range(8):
        at = f.at(f.parameters[0], k)
        f.store(f.fmul(f.load("float", at), object_constant(0.1 + k)), at)
    f.finish()
    return assembled(str(module))


def object_constant(value: float) -> Any:
    from engine.compiler.codegen.ir import constant

    return constant(value, "float")


CALLER = """
declare i64 @callee(i64)
declare i64 @labs(i64)
define i64 @caller(i64 %x) {
  %a = call i64 @callee(i64 %x)
  %b = call i64 @labs(i64 %a)
  ret i64 %b
}
"""
CALLEE = "define i64 @callee(i64 %x) {\n  %a = mul i64 %x, -3\n  ret i64 %a\n}\n"


def called(code: Block | object_code.Code | object_code.Joined, name: str, value: int) -> int:
    address = code.address(name)
    assert address is not None
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(value))


def test_functions_of_several_files_call_each_other_and_the_c_library() -> None:
    block = Block([assembled(CALLER), assembled(CALLEE)])
    assert called(block, "caller", 14) == 42
    assert block.address("nowhere") is None


def test_constants_are_found_as_llvm_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(code: object_code.Code) -> Any:
        values = np.arange(1, 9, dtype=np.float32)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address("scale"))(values.ctypes.data)
        return values

    ours = scaled(object_code.Code([scaling()], HOST))

    def refuse(objects: object) -> Block:
        raise UnsupportedObjectError("not here")

    monkeypatch.setattr(object_code, "Block", refuse)
    theirs = object_code.Code([scaling()], HOST)
    assert theirs._block is None
    np.testing.assert_array_equal(ours, scaled(theirs))


def test_objects_that_need_no_other_are_shared_one_by_one() -> None:
    alone = assembled("define i64 @alone(i64 %x) {\n  %a = mul i64 %x, 5\n  ret i64 %a\n}\n")
    caller, callee = assembled(CALLER), assembled(CALLEE)
    first = object_code.load([caller, alone, callee], HOST, is_apart=True)
    assert (called(first, "caller", 14), called(first, "alone", 3)) == (42, 15)
    assert first.bytes == len(caller) + len(alone) + len(callee)
    second = object_code.load([alone], HOST, is_apart=True)
    assert second.bytes == 0 and second.address("alone") == first.address("alone")
    with pytest.raises(CompileError, match="does not define the function"):
        first.address("nowhere")


def test_two_files_may_have_a_function_of_one_name_each_for_itself() -> None:
    files = []
    for number in (1, 2):
        inner = f"define internal i64 @inner(i64 %x) noinline {{\n  %a = mul i64 %x, {number}\n  ret i64 %a\n}}\n"
        outer = f"define i64 @outer{number}(i64 %x) {{\n  %a = call i64 @inner(i64 %x)\n  ret i64 %a\n}}\n"
        files.append(assembled(inner + outer))
    block = Block(files)
    assert [called(block, f"outer{number}", 5) for number in (1, 2)] == [5, 10]


def test_code_is_not_writable_once_it_can_run() -> None:
    block = Block([assembled(CALLEE)])
    rows = [line.split()[:2] for line in Path("/proc/self/maps").read_text().splitlines()]
    spans = [(*(int(each, 16) for each in span.split("-")), access) for span, access in rows]
    # The system merges adjacent mappings with equal permissions: another block may precede this one.
    assert [access for begin, end, access in spans if begin <= block._begin < end] == ["r-xp"]


def test_what_the_c_library_has_not_is_named() -> None:
    with pytest.raises(CompileError, match="calls an unknown function: found no_such_function_anywhere"):
        Block([assembled("declare void @no_such_function_anywhere()\n"
                         "define void @f() {\n  call void @no_such_function_anywhere()\n  ret void\n}\n")])  # fmt: skip


def test_code_of_another_processor_is_left_to_llvm() -> None:
    other = object_code.assemble(CALLEE, describe("neon"))
    with pytest.raises(UnsupportedObjectError):
        Block([other])


@given(st.data())
@example(None)
def test_a_damaged_file_is_refused_or_loaded_never_a_crash(data: st.DataObject | None) -> None:
    """It is not run: damage inside the code cannot be detected here (cache entries have checksums)."""
    whole = assembled(CALLER)
    if data is None:
        damaged = b""
    elif data.draw(st.booleans()):
        damaged = whole[: data.draw(st.integers(0, len(whole)))]
    else:
        bad = bytearray(whole)
        for _ in range(data.draw(st.integers(1, 8))):
            bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        damaged = bytes(bad)
    with contextlib.suppress(CompileError, UnsupportedObjectError):
        Block([damaged, assembled(CALLEE)])


def test_a_file_whose_table_begins_beyond_any_memory_is_damaged() -> None:
    bad = bytearray(assembled(CALLER))
    bad[47] = 0x80  # the highest byte of where the sections' table begins
    with pytest.raises(CompileError, match="damaged"):
        ObjectFile(bytes(bad))


def test_no_object_file_is_none() -> None:
    for data in (b"", b"\x7fELF", b"MZ" + bytes(100), bytes(64)):
        with pytest.raises(CompileError):
            ObjectFile(data)


WARM = """
import sys
sys.modules["llvmlite"] = None
import numpy as np
import engine
session = engine.Session(engine.load({path!r}), cache={cache!r})
print(session.run([np.float32([[-1, 2]])])[0].tolist(), session.backend, "llvmlite.binding" in sys.modules)
"""


def test_what_is_in_the_cache_runs_without_llvm(tmp_path: Path, write_pair: Callable[..., Path]) -> None:
    path, cache = write_pair(tmp_path), tmp_path / "cache"
    for without in (False, True):
        text = WARM.format(path=str(path), cache=str(cache))
        text = text if without else text.replace('sys.modules["llvmlite"] = None\n', "")
        done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert done.stdout.split()[:3] == ["[[0.0,", "2.0]]", "compiled"], done.stderr
        assert done.stdout.split()[3] == str(not without)


@pytest.fixture
def write_pair() -> Callable[..., Path]:
    from tests.engine.pnnx.build import members, param

    def write(folder: Path) -> Path:
        path = folder / "m.pnnx.param"
        lines = [
            "pnnx.Input in 0 1 0 #0=(1,2)f32", "nn.ReLU relu 1 1 0 1", "pnnx.Output out 1 0 1",
        ]  # fmt: skip
        path.write_bytes(param(lines))
        path.with_suffix(".bin").write_bytes(members({}))
        return path

    return write


def test_llvm_is_there_for_those_who_compile() -> None:
    assert import_llvm().__name__ == "llvmlite.binding"
