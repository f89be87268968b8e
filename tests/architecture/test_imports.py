"""Allowed imports: packages only import downwards, and some libraries are imported in one place only."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

VOCABULARY = {"engine.defects", "engine.ir", "engine.cancellation", "engine.errors", "engine.limits", "engine.tensor"}
BASICS = {
    "app.errors",
    "app.arrays",
    "app.content",
    "app.location",
    "app.text_files",
    "app.schema",
    "app.settings",
    "app.version",
    "app.messages",
    "engine",
}
ALLOWED: dict[str, set[str]] = {
    "engine.errors": set(),
    "engine.ir": {"engine.errors"},
    "engine.cancellation": {"engine.errors"},
    "engine.defects": {"engine.errors"},
    "engine.memory.resources": set(),
    "engine.memory": VOCABULARY,
    "engine.tensor": {"engine.errors", "engine.ir"},
    "engine.compile_metrics": set(),
    "engine.limits": {"engine.errors", "engine.ir", "engine.memory.resources", "engine.tensor"},
    "engine.promotion": VOCABULARY,
    "engine.special": VOCABULARY,
    "engine.pnnx": VOCABULARY | {"engine.memory"},
    "engine.bundle": VOCABULARY | {"engine.memory", "engine.pnnx"},
    "engine.expression": VOCABULARY | {"engine.promotion", "engine.special"},
    "engine.layers": VOCABULARY | {"engine.ir", "engine.promotion", "engine.special", "engine.expression"},
    "engine.onnx": VOCABULARY | {"engine.memory", "engine.layers", "engine.pnnx"},
    "engine.graph": VOCABULARY | {"engine.bundle", "engine.expression", "engine.layers", "engine.onnx", "engine.pnnx"},
    "engine.onnx_writing": VOCABULARY
    | {"engine.expression", "engine.graph", "engine.layers", "engine.memory", "engine.onnx", "engine.pnnx"}
    | {"engine.promotion"},
    "engine.passes": VOCABULARY | {"engine.expression", "engine.graph", "engine.layers", "engine.pnnx"},
    "engine.options": {"engine.errors", "engine.passes"},
    "engine.profiling": {"engine.graph"},
    "engine.compiler.codegen.ir": {"engine.ir"},
    "engine.compiler.codegen.host": {"engine.errors", "engine.compiler.codegen.tile_permission"},
    "engine.compiler.codegen.loader": {"engine.errors"},
    "engine.compiler.codegen.tile_permission": set(),
    "engine.compiler.codegen.memory_release": set(),
    "engine.compiler.codegen.object_code": {"engine.errors"}
    | {"engine.compiler.codegen.host", "engine.compiler.codegen.memory_release", "engine.compiler.codegen.loader"},
    "engine.compiler.kernels": VOCABULARY
    | {"engine.compiler.codegen.host", "engine.compiler.codegen.ir", "engine.special"},
    "engine.compiler.lowering": VOCABULARY
    | {"engine.compiler.executable", "engine.compiler.codegen.host", "engine.compiler.kernels"}
    | {"engine.compiler.addresses", "engine.compiler.storage"}
    | {"engine.expression", "engine.graph", "engine.ir", "engine.layers", "engine.passes"}
    | {"engine.options", "engine.promotion"},
    "engine.compiler": VOCABULARY
    | {
        "engine.bundle",
        "engine.compile_metrics",
        "engine.memory",
        "engine.options",
        "engine.profiling",
        "engine.cancellation",
    }
    | {"engine.expression", "engine.graph", "engine.ir", "engine.layers", "engine.passes", "engine.pnnx"}
    | {"engine.promotion", "engine.special"},
    "engine.toolchain": VOCABULARY | {"engine.bundle", "engine.compiler", "engine.options", "engine.cancellation"},
    "engine.session": VOCABULARY
    | {
        "engine.bundle",
        "engine.compiler",
        "engine.graph",
        "engine.options",
        "engine.profiling",
        "engine.cancellation",
        "engine.toolchain",
    },
    "engine.quantisation": VOCABULARY
    | {
        "engine.cancellation",
        "engine.graph",
        "engine.layers",
        "engine.memory.resources",
        "engine.passes",
        "engine.pnnx",
        "engine.session",
        "engine.toolchain",
    },
    "engine.comparison": VOCABULARY | {"engine.graph", "engine.session"},
    "engine.loading": VOCABULARY
    | {"engine.bundle", "engine.graph", "engine.layers", "engine.pnnx", "engine.toolchain"},
    "engine.explanation": VOCABULARY | {"engine.expression", "engine.graph", "engine.layers", "engine.session"},
    "app.keys": BASICS,
    "app.measuring": set(),
    "app.memory": {"app.errors", "engine"},
    "app.images": BASICS | {"app.memory"},
    "app.text": BASICS | {"app.memory"},
    "app.sound": BASICS | {"app.memory"},
    "app.tasks": BASICS | {"app.images", "app.memory", "app.signature", "app.sound", "app.text"},
    "app.arrays": BASICS | {"app.memory"},
    "app.codec": BASICS | {"app.images", "app.memory", "app.signature", "app.arrays", "app.sound", "app.text"},
    "app.hooks": BASICS | {"app.arrays", "app.codec", "app.images", "app.memory", "app.signature"},
    "app.render": BASICS,
    "app.scheduling": BASICS | {"app.memory"},
    "app.models": BASICS
    | {"app.images", "app.python_files", "app.memory", "app.progress", "app.scheduling", "app.signature", "app.tasks"}
    | {"app.arrays", "app.hooks", "app.sound", "app.text", "app.pipelines"},
    "app.pipelines": BASICS
    | {"app.arrays", "app.images", "app.memory", "app.scheduling", "app.signature", "app.sound", "app.text"}
    | {"app.hooks", "app.models.request", "app.models.sequences", "app.models.servable", "app.models.statistics"},
    "app.trials": BASICS | {"app.codec", "app.measuring", "app.memory", "app.models"},
    "app.console": BASICS | {"app.codec", "app.images", "app.memory", "app.models", "app.render", "app.serving"},
    "app.remote": BASICS | {"app.models.folder.layout"},
    "app.serving": BASICS | {"app.memory", "app.models", "app.remote", "app.scheduling", "app.thread_limits"},
    "app.scale": BASICS
    | {"app.codec", "app.http.main", "app.log", "app.metrics", "app.models", "app.remote", "app.serving"}
    | {"app.thread_limits"},
    "app.metrics": BASICS | {"app.memory", "app.models", "app.serving"},
    "app.protocol": BASICS
    | {"app.version", "app.codec", "app.images", "app.memory", "app.models", "app.scheduling", "app.serving"}
    | {"app.signature", "app.arrays", "app.sound"},
    "app.tracing": {"app.log", "app.models.statistics", "app.settings", "app.version"},
    "app.grpc": BASICS
    | {
        "app.keys",
        "app.codec",
        "app.log",
        "app.memory",
        "app.models",
        "app.protocol",
        "app.serving",
        "app.tracing",
    },
    "app.http": BASICS
    | {
        "app.tracing",
        "app.keys",
        "app.protocol",
        "app.codec",
        "app.console",
        "app.hooks",
        "app.log",
        "app.memory",
        "app.metrics",
        "app.models",
        "app.pipelines",
        "app.render",
        "app.serving",
        "app.scheduling",
        "app.tasks",
        "app.signature",
        "app.sound",
        "app.text",
        "app.trials",
    },
    "app.process": BASICS
    | {
        "app.keys",
        "app.codec",
        "app.grpc",
        "app.http",
        "app.log",
        "app.memory",
        "app.metrics",
        "app.models",
        "app.remote",
        "app.render",
        "app.serving",
        "app.signature",
        "app.tracing",
    },
    "app": {"engine"},
    "exporter": {"app.models.folder.layout", "engine"},
}
# Packages that may import a library.
DOORS: dict[str, tuple[str, ...]] = {
    "llvmlite": ("engine.compiler",),
    "fastapi": ("app",),
    "starlette": ("app",),
    "pydantic": ("app",),
    "uvicorn": (
        "app.process.server",
        "app.process.uvicorn_server",
        "app.http.server.connection",
    ),
    "PIL": ("app",),
    "torch": ("exporter",),
    "exporter": ("app.cli.export", "app.cli.moving_in", "app.cli.quantize"),
    "prometheus_client": ("app.metrics.exposition",),
    "soundfile": ("app.sound.decode",),
    "soxr": ("app.sound.decode",),
    "tokenizers": ("app.text.tokenizer",),
    "wsproto": ("app.http.server.web_socket",),
    "fsspec": ("app.remote.source",),
    "aiohttp": ("app.remote.source", "app.remote.redirects"),
    "ray": ("app.scale.ray",),
    "app.scale": ("app.cli.deploy",),
    "grpc": ("app.grpc",),
    "opentelemetry": ("app.tracing.otel",),
    "google": ("app.grpc.methods", "app.protocol.grpc"),
    "onnx": ("engine.onnx.reading.source", "app.cli.moving_in.onnx_file", "exporter.sentence_models"),
    "ml_dtypes": ("engine.tensor", "engine.layers", "engine.onnx.reading.tensors", "app.codec", "app.protocol"),
}


def modules(room: str) -> Iterator[tuple[str, Path]]:
    path = ROOT / room.replace(".", "/")
    files = [path.with_suffix(".py")] if path.with_suffix(".py").exists() else sorted(path.rglob("*.py"))
    for file in files:
        yield ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), file


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes that can run; imports for the type checker alone are skipped."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not is_type_checking(child):
            yield from statements(child)


@functools.cache
def imported(path: Path) -> tuple[str, ...]:
    names: list[str] = []
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from engine import pnnx` imports the package engine.pnnx.
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(names)


def within(name: str, rooms: set[str]) -> bool:
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


@pytest.mark.parametrize("room", ALLOWED)
def test_rooms_only_import_downwards(room: str) -> None:
    wrong = [
        f"{module} imports {name}"
        for module, path in modules(room)
        for name in imported(path)
        if name.split(".")[0] in ("engine", "app") and not within(name, ALLOWED[room] | {room})
    ]
    assert not wrong


def test_every_room_has_its_rule() -> None:
    rooms = {f"engine.{path.stem}" for path in (ROOT / "engine").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert {room for room in rooms if not room.endswith("__") and room != "engine.py"} <= set(ALLOWED)


@pytest.mark.parametrize("package", ["app", "exporter"])
def test_other_packages_use_only_the_engines_public_names(package: str) -> None:
    rooms = {f"engine.{path.stem}" for path in (ROOT / "engine").iterdir() if path.stem != "__init__"}
    assert not [
        f"{module}: {name}" for module, path in modules(package) for name in imported(path) if within(name, rooms)
    ]


@pytest.mark.parametrize("library", DOORS)
def test_a_library_is_imported_through_its_door_only(library: str) -> None:
    everywhere = [*modules("engine"), *modules("app"), *modules("exporter")]
    wrong = [
        module
        for module, path in everywhere
        for name in imported(path)
        if within(name, {library}) and not within(module, {*DOORS[library], library})
    ]
    assert not wrong


# numpy does not check strides: layers make views from a file's numbers in one module, which checks both ends.
WILD_VIEWS = ("as_strided", "sliding_window_view", "np.diagonal", ".diagonal(", "np.ndarray(", "from_address")

_AS_STRIDED = re.compile(r'"(torch\.as_strided|aten::as_strided_copy)"')  # as a type of operators


@pytest.mark.parametrize("room", ["engine.graph", "engine.layers", "engine.passes", "engine.expression"])
def test_views_by_numbers_of_a_file_are_made_in_one_module(room: str) -> None:
    wrong = [
        f"{module}: {name}"
        for module, path in modules(room)
        for name in WILD_VIEWS
        if module != "engine.layers.operands.views" and name in _AS_STRIDED.sub("", path.read_text())
    ]
    assert not wrong


def targets(module: str, path: Path, known: set[str]) -> set[str]:
    """The modules a module imports; a package stands for its own names, not for its rooms."""
    names = {name if name in known else name.rpartition(".")[0] for name in imported(path)}
    return names & known - {module}


def test_there_is_no_import_cycle_between_modules() -> None:
    everything = dict([*modules("engine"), *modules("app"), *modules("exporter")])
    edges = {module: targets(module, path, set(everything)) for module, path in everything.items()}
    while leaves := {module for module, needed in edges.items() if not needed & edges.keys()}:
        edges = {module: needed for module, needed in edges.items() if module not in leaves}
    assert not {module: sorted(needed & edges.keys()) for module, needed in edges.items()}


def test_the_client_needs_no_more_than_it_says() -> None:
    files = sorted((ROOT / "clients/python/pnnx_client").rglob("*.py"))
    needed = {name.split(".")[0] for path in files for name in imported(path)} - sys.stdlib_module_names
    assert files and needed == {"httpx", "ml_dtypes", "numpy", "pnnx_client"}


def test_no_package_uses_the_client() -> None:
    everywhere = [*modules("engine"), *modules("app"), *modules("exporter")]
    assert not [module for module, path in everywhere if any(within(name, {"pnnx_client"}) for name in imported(path))]
