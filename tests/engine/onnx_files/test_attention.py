"""Attention of the standard: operands that do not fit, masks of fewer keys, and heads shared by queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.onnx_files.models import expected, model, node, save, value

HEADS = [2, 3, 4, 8]
NAMES = ("query", "key", "value", "mask", "past_key", "past_value", "lengths")
FLOAT, INT64, COMPLEX = 1, 7, 14


def attention(shapes: dict[str, Any], types: dict[str, int] | None = None, **attributes: Any) -> Any:
    given = {"query": HEADS, "key": HEADS, "value": HEADS, **shapes}
    names = [name if name in given else "" for name in NAMES]
    ports = [value(name, shape, (types or {}).get(name, FLOAT)) for name, shape in given.items()]
    return model([node("Attention", names, ["y"], **attributes)], ports, [value("y", None)], opset=24)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"key": [4, 3, 4, 8], "value": [4, 3, 4, 8]}, r"do not broadcast: found \[2, 3\] and \[4, 3\]"),
        ({"value": [5, 3, 4, 8]}, r"do not broadcast: found \[2, 3\] and \[5, 3\]"),
        ({"key": [2, 2, 4, 8], "value": [2, 2, 4, 8]}, "heads do not divide into groups: found 3 by 2"),
        ({"mask": [2, 3, 4, 12]}, r"attn_mask does not fit: found \[2, 3, 4, 12\], expected at most 4 keys"),
        ({"mask": []}, r"attn_mask does not fit: found \[\], expected at most 4 keys"),
        ({"mask": [5, 4]}, "broadcast"),
        ({"past_key": [2, 3, 5, 8], "past_value": [2, 3, 5]}, r"cannot be joined: found \[2, 3, 5\]"),
        ({"past_key": [2, 3, 5, 8], "past_value": [2, 3, 6, 8]}, r"found \[2, 3, 4"),
        ({"past_key": [2, 3, 5, 8]}, "keys of earlier steps come with values: found one of them"),
        ({"past_key": HEADS, "past_value": HEADS, "lengths": [2]}, "beside keys of earlier steps: found both"),
        ({"lengths": [3]}, r"found \[2, 3, 4, 4\] and \[3, 1, 1, 4\]"),
        ({"query": [2, 4, 24]}, "the width does not divide into heads"),
        ({"query": [4, 24]}, "operand does not fit"),
    ],
)
@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_operands_that_do_not_fit_are_refused(
    tmp_path: Path, shapes: dict[str, Any], message: str, softcap: float
) -> None:
    proto = attention(shapes, {"lengths": INT64}, softcap=softcap)
    with pytest.raises(engine.EngineError, match=r"'Attention_0' \(Attention, opset 24\)") as caught:
        engine.load(save(tmp_path, proto))
    assert caught.match(message)


def test_a_complex_mask_is_refused(tmp_path: Path) -> None:
    with pytest.raises(engine.EngineError, match="operand 'attn_mask' has the wrong dtype: found complex64"):
        engine.load(save(tmp_path, attention({"mask": [4, 4]}, {"mask": COMPLEX})))


@pytest.mark.parametrize("attributes", [{}, {"softcap": 2.0}, {"is_causal": 1, "softcap": 1.5}], ids=str)
@pytest.mark.parametrize("shapes", [{"mask": [4, 3]}, {"key": [2, 1, 4, 8], "value": [2, 1, 4, 8]}], ids=str)
def test_short_masks_and_shared_heads_agree_with_the_standard(
    tmp_path: Path, shapes: dict[str, Any], attributes: dict[str, Any]
) -> None:
    proto, random = attention(shapes, **attributes), np.random.default_rng(0)
    sizes = {"query": HEADS, "key": HEADS, "value": HEADS, **shapes}
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in sizes.items()}
    graph = engine.load(save(tmp_path, proto))
    for backend in ("reference", "compiled"):
        found = engine.Session(graph, backend, 1, cache=None).run(feeds)[0]  # type: ignore[arg-type]
        np.testing.assert_allclose(found, expected(proto, feeds)[0], rtol=1e-4, atol=1e-5)
