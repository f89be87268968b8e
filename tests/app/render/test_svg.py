"""Tests of the SVG drawing, parsed by an XML parser."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from app.render import render
from app.render.caption import COLOURS, TEXT
from tests.app.render.build import HOSTILE_TEXTS, Sketch, hostile, profiled, residual

SVG = "{http://www.w3.org/2000/svg}"
CODE_TAGS = {"script", "foreignObject", "a", "image", "use", "animate", "set", "iframe", "handler"}


def parse(description: dict[str, Any]) -> ElementTree.Element:
    return ElementTree.fromstring(render(description, "svg"))


def group(root: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [g for g in root.iter(f"{SVG}g") if kind in g.get("class", "").split()]


def title(element: ElementTree.Element) -> str:
    return element.findtext(f"{SVG}title") or ""


def texts(element: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in element.iter(f"{SVG}text")]


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2.2."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_every_operator_is_drawn_once_with_its_name() -> None:
    drawn = group(parse(residual()), "pnnx-graph-operator")
    assert [g.get("data-name") for g in drawn] == ["in0", "conv", "offset", "relu", "sum", "halves", "pair", "out0"]


def test_every_operand_with_a_consumer_is_one_edge() -> None:
    edges = group(parse(residual()), "pnnx-graph-edge")
    assert [title(edge).split(":")[0] for edge in edges] == ["0", "1", "2", "3", "4", "5", "6", "7"]


def test_a_box_says_type_name_parameters_and_shape() -> None:
    conv = group(parse(residual()), "pnnx-graph-operator")[1]
    assert texts(conv) == ["nn.Conv2d", "conv", "3×3, 3→4, stride 2, padding 1", "1×4×8×8"]


def test_inputs_outputs_and_constants_say_what_flows() -> None:
    drawn = group(parse(residual()), "pnnx-graph-operator")
    assert [texts(drawn[i]) for i in (0, 2, 7)] == [["in0 1×3×16×16 float32"], ["offset 4×1×1 float32"], ["out0"]]


def test_an_expression_is_shown_infix() -> None:
    assert "(@0 + @1) * @2" in texts(group(parse(residual()), "pnnx-graph-operator")[4])


def test_a_tooltip_says_everything_known() -> None:
    conv = title(group(parse(residual()), "pnnx-graph-operator")[1])
    for line in ("padding_mode = zeros", "@weight 4×3×3×3 float32", "in  0: 1×3×16×16 float32", "kernel: reference"):
        assert line in conv.splitlines()


def test_the_document_names_itself_for_screen_readers() -> None:
    root = parse(residual())
    named = {element.get("id"): element.text for element in root if element.get("id")}
    assert root.get("role") == "img"
    assert [named[id] for id in root.get("aria-labelledby", "").split()] == [
        "Graph of residual",
        "8 operators · 112 parameters · 448 B · 13.8 kFLOP",
    ]


def test_the_view_box_is_the_size() -> None:
    root = parse(residual())
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"


def test_light_and_dark_schemes_are_both_styled() -> None:
    style = parse(residual()).findtext(f"{SVG}style") or ""
    assert "prefers-color-scheme:dark" in style
    selectors = re.findall(r"([^{}]+)\{", style.replace("@media (prefers-color-scheme:dark){", ""))
    assert all(".pnnx-graph" in selector for selector in selectors)


@pytest.mark.parametrize("colour", COLOURS.values(), ids=list(COLOURS))
def test_text_on_every_family_colour_is_readable(colour: str) -> None:
    assert (luminance(TEXT) + 0.05) / (luminance(colour) + 0.05) >= 4.5


def test_the_legend_counts_the_families() -> None:
    (legend,) = group(parse(residual()), "pnnx-graph-legend")
    assert texts(legend)[2:] == ["io 2", "conv 1", "activation 1", "shape 2", "expression 1", "constant 1"]


def test_a_profile_is_shown_as_time_share_and_heat() -> None:
    root = parse(profiled())
    conv, expression = (group(root, "pnnx-graph-operator")[i] for i in (1, 4))
    assert texts(conv)[1] == "100 µs · 4.8 %"
    heat = [element.get("opacity") for g in (conv, expression) for element in g if "heat" in element.get("class", "")]
    assert 0 < float(heat[0] or 0) < float(heat[1] or 0) < 1


def test_without_a_profile_there_is_no_heat() -> None:
    assert 'class="pnnx-graph-heat"' not in render(residual(), "svg")


def test_hostile_texts_make_no_elements() -> None:
    root = parse(hostile())
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert not tags & CODE_TAGS
    assert not {key for element in root.iter() for key in element.attrib if key.startswith("on") or "href" in key}


def test_hostile_texts_stay_readable() -> None:
    drawn = group(parse(hostile()), "pnnx-graph-operator")
    assert [g.get("data-name") for g in drawn[1:4]] == [f"name{text}" for text in HOSTILE_TEXTS[:3]]


def test_characters_xml_forbids_are_replaced() -> None:
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff\ufffe\uffff]", render(hostile(), "svg")
    )


def test_a_description_of_almost_nothing_is_drawn() -> None:
    root = parse({"operators": [{"name": "a", "type": "my.Op"}]})
    assert texts(group(root, "pnnx-graph-operator")[0]) == ["my.Op", "a"]


def test_a_long_name_keeps_both_ends() -> None:
    sketch = Sketch()
    sketch.operator("nn.ReLU", name="backbone." * 20 + "stage4.block2.act")
    (name,) = [text for text in texts(parse(sketch.describe())) if text.startswith("backbone")]
    assert len(name) <= 42
    assert name.endswith("…tage4.block2.act"[2:])


def test_coordinates_do_not_grow_faster_than_the_graph() -> None:
    def size(count: int) -> int:
        sketch = Sketch()
        (x,) = sketch.operator("pnnx.Input")
        (y,) = (x,)
        for _ in range(count):
            (y,) = sketch.operator("torch.add", x, y)
        return len(render(sketch.describe(), "svg"))

    assert size(800) < 9 * size(100)
