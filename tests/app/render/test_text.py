"""Tests of the table and the JSON."""

from __future__ import annotations

import json
import math
import re

import pytest

from app.errors import InvalidRequestError
from app.render import FORMATS, MEDIA_TYPES, render, with_times
from tests.app.render.build import Sketch, hostile, profiled, residual

TABLE = """\
#  type                  name    inputs -> outputs  shape             kernel      flops  parameters
0  pnnx.Input            in0     -> 0               1×3×16×16
1  nn.Conv2d             conv    0 -> 1             1×4×8×8           reference  13.8 k  in_channels=3 out_channels=4 \
kernel_size=(3,3) stride=(2,2) padding=(1,1) dilation=(1,1) groups=1 bias=True padding_mode=zeros \
@weight=(4,3,3,3)float32
2  pnnx.Attribute        offset  -> 2               4×1×1
3  F.relu                relu    1 -> 3             1×4×8×8           reference
4  pnnx.Expression       sum     1 2 3 -> 4         1×4×8×8                              (@0 + @1) * @2
5  torch.chunk           halves  4 -> 5 6           1×2×8×8, 1×2×8×8                     dim=1
6  prim::TupleConstruct  pair    5 6 -> 7
7  pnnx.Output           out0    7 ->

8 operators · 112 parameters · 448 B · 13.8 kFLOP
"""


def test_the_table_has_a_line_for_every_operator() -> None:
    assert render(residual(), "text") == TABLE


def test_a_profile_adds_time_and_share() -> None:
    lines = render(profiled(), "text").splitlines()
    assert lines[0].split()[-3:] == ["time", "share", "parameters"]
    assert re.search(r" 100 µs +4\.8 % ", lines[2])
    assert lines[-1].endswith(" · 2.1 ms")


def test_times_are_joined_to_operators_by_index() -> None:
    description = with_times(residual(), [{"index": 3, "name": "relu", "time_us": 5.0}])
    assert [operator.get("time_us") for operator in description["operators"][2:5]] == [None, 5.0, None]
    assert "time_us" not in residual()["operators"][3]


def test_warnings_are_listed_after_the_totals() -> None:
    mismatch = {"operator": "conv", "message": "computed [1], annotated [2]"}
    text = render({**residual(), "warnings": ["plain", mismatch]}, "text")
    assert text.splitlines()[-2:] == ["warning: plain", "warning: conv: computed [1], annotated [2]"]


def test_a_warning_that_names_its_operator_does_not_name_it_twice() -> None:
    text = render({**residual(), "warnings": [{"operator": "conv", "message": "conv: computed [1]"}]}, "text")
    assert text.splitlines()[-1] == "warning: conv: computed [1]"


def test_the_table_sends_no_control_character_to_a_terminal() -> None:
    text = render(hostile(), "text")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", text)
    assert "\\x1b[31m" in text


def test_json_is_the_description() -> None:
    assert json.loads(render(residual(), "json")) == residual()


def test_json_holds_no_number_that_json_has_not() -> None:
    sketch = Sketch()
    params = {"a": math.inf, "b": -math.inf, "c": math.nan, "d": 1 + 2j, "e": (1, 2.5)}
    sketch.operator("my.Op", params=params)
    text = render(sketch.describe(), "json")
    read = json.loads(text, parse_constant=pytest.fail)["operators"][0]["params"]
    assert read == {"a": "inf", "b": "-inf", "c": "nan", "d": "(1+2j)", "e": [1, 2.5]}


def test_json_of_hostile_names_is_ascii() -> None:
    assert render(hostile(), "json").isascii()


def test_every_format_has_a_media_type() -> None:
    assert set(FORMATS) == set(MEDIA_TYPES) == {"json", "svg", "dot", "mermaid", "text"}


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_draws_an_empty_graph(format: str) -> None:
    assert render({"operators": []}, format)


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequestError, match="found 'png', expected one of json, svg, dot, mermaid, text"):
        render(residual(), "png")
