"""Examples as files, the answers of the engine and of others, and what is wrong with the engine's."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

import engine
from engine.tensor import is_close
from tests.engine.onnx_files.models import onnx
from tests.engine.onnx_files.operators.example import MAKERS, Example

Answer = list[Any] | str
"""Results, or what was refused."""

NEWEST: Final = onnx.defs.onnx_opset_version()
MICROSOFT: Final = "com.microsoft"

UNTOLD: Final = {
    ("", type)
    for type in (
        *("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength"),
        *(
            "SequenceMap",
            "SplitToSequence",
            "ConcatFromSequence",
            "Optional",
            "OptionalGetElement",
            "OptionalHasElement",
        ),
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"),
        *("StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
    )
} | {("", "SimplifiedLayerNormalization"), (MICROSOFT, "SimplifiedLayerNormalization"), (MICROSOFT, "Tokenizer")}
"""Operators without examples: of sequences and texts, which have tests of their own, and random ones."""

FAULTS: Final[Mapping[str, Sequence[tuple[Sequence[str], Callable[[Call], bool], str]]]] = {
    "onnxruntime": [
        (
            ("MaxUnpool",),
            lambda call: len(call.example.inputs) > 2 and call.example.inputs[2] is not None,
            "counts places in output_shape",
        ),
        (("Dropout",), lambda call: call.example.version < 12 and len(call.names) > 1, "the mask is not defined then"),
        (
            ("DynamicQuantizeLSTM",),
            lambda call: call.example.inputs[3] is None and call.example.inputs[4] is not None,
            "without a bias it rounds by rows whose sequences have ended",
        ),
    ],
    "reference": [
        (("Dropout",), lambda call: call.example.version < 12, "as above"),
        (("AveragePool",), lambda call: call.example.version < 7, "counts padding, which the schema does not"),
        (("Resize",), lambda call: True, "places in double precision, corners aligned by an unrounded size"),
        (("LRN",), lambda call: True, "sums as many channels as the batch has images"),
        (("LSTM", "GRU", "RNN"), lambda call: call.example.inputs[4:5] != (None,), "ignores sequence_lens"),
        (
            ("Attention",),
            lambda call: "softcap" in call.example.attributes,
            "the scores of mode 0 have a cap in version 25",
        ),
    ],
}
"""Operators for which an oracle contradicts the standard, the calls concerned, and how."""


def versions() -> dict[tuple[str, str], list[int]]:
    """The versions in which an operator's schema changed, by domain and name; those of onnxruntime are of one."""
    found: dict[tuple[str, str], list[int]] = {key: [1] for key in MAKERS if key[0] == MICROSOFT}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and not schema.deprecated:
            found.setdefault(("", schema.name), []).append(schema.since_version)
    return {key: sorted(each) for key, each in found.items()}


def examples(domain: str, type: str, version: int) -> list[Example]:
    """The examples of an operator in a version."""
    made = MAKERS[domain, type](type, version)
    return [replace(each, type=type, version=version, domain=domain) for each in made]


def model(example: Example, outputs: Sequence[str], *, is_dynamic: bool = False) -> Any:
    """A file with this one operator.

    Args:
        is_dynamic: whether its inputs have dynamic sizes.
    """
    helper = onnx.helper
    given = {f"x{k}": each for k, each in enumerate(example.inputs) if each is not None}
    names = [f"x{k}" if each is not None else "" for k, each in enumerate(example.inputs)]
    while names and not names[-1]:
        names.pop()
    node = helper.make_node(example.type, names, list(outputs), domain=example.domain, **dict(example.attributes))
    inputs = [_port(name, each.value, is_dynamic) for name, each in given.items() if not each.is_stored]
    weights = [onnx.numpy_helper.from_array(each.value, name) for name, each in given.items() if each.is_stored]
    results = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    graph = helper.make_graph([node], "graph", inputs, results, weights)
    imports = [helper.make_opsetid("", 21 if example.domain else example.version)]
    imports += [helper.make_opsetid(example.domain, 1)] if example.domain else []
    proto = helper.make_model(graph, opset_imports=imports)
    proto.ir_version = 8 if imports[0].version < 19 else 10 if imports[0].version < 23 else 11
    return proto


def _port(name: str, value: Any, is_dynamic: bool) -> Any:
    dtype = onnx.helper.np_dtype_to_tensor_dtype(value.dtype) if value.dtype != object else onnx.TensorProto.STRING
    shape = [f"{name}_{axis}" for axis in range(value.ndim)] if is_dynamic else list(value.shape)
    return onnx.helper.make_tensor_value_info(name, dtype, shape)


def of_engine(proto: Any, feeds: Any, folder: Path, backend: str = "reference", *, as_pair: bool = False) -> Answer:
    """Return the engine's result for the file, or for the pair that it saves."""
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    try:
        graph = engine.load(path)
        if as_pair:
            graph.save(folder / "model.pnnx.param", folder / "model.pnnx.bin")
            graph = engine.load(folder / "model.pnnx.param", folder / "model.pnnx.bin")
        session = engine.Session(graph, backend=backend, threads=1, cache=None)
        return [np.array(each) for each in session.run({key: value.copy() for key, value in feeds.items()})]
    except engine.EngineError as error:
        return f"{type(error).__name__}: {error}"


def of_onnxruntime(proto: Any, feeds: Any) -> Answer:
    """Return onnxruntime's result."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    # Products with weights in blocks are computed in float32; the default rounds their other operand to bytes.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    try:
        data = proto.SerializeToString()
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        return [np.asarray(each) for each in session.run(None, feeds)]
    except Exception as error:  # its errors have no common base
        return f"{type(error).__name__}: {str(error)[:200]}"


def of_reference(proto: Any, feeds: Any) -> Answer:
    """Return the result of ONNX's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return [np.asarray(each) for each in ReferenceEvaluator(proto).run(None, dict(feeds))]
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"


def difference(mine: Answer, theirs: Answer, steps: int = 0) -> str | None:
    """Return the fault of a result; None if there is none."""
    if isinstance(theirs, str):
        return None
    if isinstance(mine, str):
        return f"refused: {mine}"
    if len(mine) != len(theirs):
        return f"{len(mine)} results, expected {len(theirs)}"
    for k, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        if a.dtype.name.startswith("float8") and b.dtype == np.uint8:  # as onnxruntime hands them out
            b = b.view(a.dtype)
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"result {k}: {a.dtype} {a.shape}, expected {b.dtype} {b.shape}"
        if not _alike(a, b, steps):
            return f"result {k}: {a.ravel()[:8].tolist()}, expected {b.ravel()[:8].tolist()}"
    return None


def _alike(a: Any, b: Any, steps: int) -> bool:
    if a.dtype.kind in "OU":
        return bool((a == b).all())
    if steps and a.dtype.kind in "iu":
        return bool((np.abs(a.astype(np.int64) - b.astype(np.int64)) <= steps).all())
    if a.dtype.kind == "V" or a.dtype.name.startswith(("float8", "float4", "int4", "uint4", "int2", "uint2", "bfloat")):
        a, b = a.astype(np.float32), b.astype(np.float32)
        return bool(np.allclose(a, b, rtol=1e-2, atol=1e-2, equal_nan=True))
    if a.dtype == np.float16:
        return bool(np.allclose(a, b, rtol=4e-3, atol=4e-3, equal_nan=True))
    return is_close(a, b)


@dataclass(frozen=True, slots=True)
class Call:
    """An example with the names of its results.

    Args:
        number: of the example among those of its version.
        variant: of the subset of its optional operands and results.
    """

    example: Example
    names: Sequence[str]
    number: int
    variant: int

    @property
    def key(self) -> str:
        """Key of its recorded result."""
        each = self.example
        return f"{each.domain}/{each.type}-{each.version}/{self.number}.{self.variant}"

    @property
    def leaves_out(self) -> bool:
        """Return whether an operand or a result is omitted."""
        return self.variant > 0

    @property
    def fits_a_pair(self) -> bool:
        """Return whether a pair can hold it, which cannot express subgraphs."""
        return not any(hasattr(value, "node") for value in self.example.attributes.values())

    def __str__(self) -> str:
        return f"{self.key} {self.example} {','.join(self.names)}"


def calls(domain: str, type: str) -> Iterator[Call]:
    """Yield all calls of an operator, in all versions."""
    for version in versions()[domain, type]:
        for number, example in enumerate(examples(domain, type, version)):
            for variant, (each, names) in enumerate(example.variants()):
                yield Call(each, names, number, variant)


def sample(domain: str, type: str) -> Iterator[Call]:
    """The first example of each version, of the newest one also the second, and all variants of the first."""
    newest = versions()[domain, type][-1]
    for call in calls(domain, type):
        is_newest = call.example.version == newest
        if call.number < 1 + is_newest and (not call.leaves_out or (call.number == 0 and is_newest)):
            yield call


def answer(call: Call, proto: Any, feeds: Mapping[str, Any]) -> Answer:
    """Return onnxruntime's result, or else the reference's; a text if there is neither."""
    found = "" if _is_wrong("onnxruntime", call) else of_onnxruntime(proto, feeds)
    if isinstance(found, str) and not _is_wrong("reference", call):
        found = of_reference(proto, feeds)
    return found


def _is_wrong(oracle: str, call: Call) -> bool:
    return any(call.example.type in types and holds(call) for types, holds, _ in FAULTS[oracle])
