"""Files that read well but make no sense: a graph builds, or is refused with an EngineError and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import EngineError, RuntimeGraph
from engine.pnnx import read
from tests.engine.graph.build import INPUT, built, op
from tests.engine.layers.samples import Sample, all_samples
from tests.nightly import IS_NIGHTLY

SAMPLES = all_samples()
LINES = [line.split() for sample in SAMPLES for line in sample.param.splitlines()[2:]]
TYPES = sorted({line[0] for line in LINES})
VALUES = sorted({word.partition("=")[2] for line in LINES for word in line[4:] if "=" in word and word[0].isalpha()})


@st.composite
def mangled(draw: st.DrawFn) -> tuple[Sample, str]:
    """A sample, and its text with some types and parameter values exchanged for those of other samples."""
    sample = draw(st.sampled_from(SAMPLES))
    lines = [line.split() for line in sample.param.splitlines()]
    for _ in range(draw(st.integers(1, 3))):
        line = draw(st.sampled_from(lines[2:]))
        params = [k for k, word in enumerate(line) if k > 3 and "=" in word and word[0].isalpha()]
        if not params or draw(st.booleans()):
            line[0] = draw(st.sampled_from(TYPES))
            continue
        place = draw(st.sampled_from(params))
        line[place] = f"{line[place].partition('=')[0]}={draw(st.sampled_from(VALUES))}"
    return sample, "\n".join(" ".join(line) for line in lines) + "\n"


@settings(
    max_examples=3000 if IS_NIGHTLY else 100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
@given(mangled())
def test_a_mangled_graph_is_built_or_refused_with_an_engine_error(tmp_path: Path, case: tuple[Sample, str]) -> None:
    sample, text = case
    param, weights = sample.extract(tmp_path)
    param.write_text(text)
    try:
        RuntimeGraph.from_source(read(param, weights)).build()
    except EngineError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("type", "takes", "given"),
    [("prim::TupleConstruct", 2, {}), ("prim::ListConstruct", 2, {}), ("pnnx.Expression", 1, {"expr": "[@0,@0]"})],
)
def test_a_list_that_doubles_with_each_operator_is_refused(type: str, takes: int, given: dict[str, str]) -> None:
    first = op("pnnx.Expression", "two", "", "1", expr="2")
    steps = [op(type, f"t{k}", f"{k} " * takes, f"{k + 1}", **given) for k in range(1, 60)]
    with pytest.raises(EngineError, match="too many values in a list"):
        built(INPUT, first, *steps, op("pnnx.Output", "out", "60"), _0=(1, 2))


def test_lists_inside_each_other_without_end_are_refused() -> None:
    steps = [op("prim::TupleConstruct", f"t{k}", f"{k}", f"{k + 1}") for k in range(2000)]
    with pytest.raises(EngineError, match="lists are nested too deep: found 33, expected at most 32"):
        built(INPUT, *steps, op("pnnx.Output", "out", "2000"), _0=(1, 2))
