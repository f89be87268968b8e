"""Tests that docs/ has every setting, configuration key, parameter and route."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from app.images.config import PreprocessConfig
from app.messages import size_text
from app.models.folder.config import config_type
from app.schema import Section
from app.settings import SECTIONS, Settings, variable
from app.sound.config import SoundConfig
from app.tasks.registry import parameter_names
from app.text.config import TextConfig
from tests.app.client import Client

DOCS = Path(__file__).parents[3] / "docs"


def shown(field: FieldInfo) -> tuple[str, str]:
    """Return the default value of a setting, and its unit."""
    value, unit = field.default, field.json_schema_extra["unit"]  # type: ignore[index,call-overload]
    if value is None or value == ():
        return "–", unit
    text = size_text(value) if unit == "bytes" else str(value)
    return text.lower() if isinstance(value, bool) else text, unit


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_has_its_row_in_its_section_with_default_unit_and_help(section: type[BaseModel]) -> None:
    _, text = (DOCS / "settings.md").read_text().split(f"### {(section.__doc__ or '').rstrip('.')}\n")
    rows = re.findall(
        r"^\| `(\w+)` \| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \|$", re.split("^##", text, flags=re.M)[0], re.M
    )
    expected = [
        (name, variable(name), *shown(field), field.description) for name, field in section.model_fields.items()
    ]
    assert rows == expected


def test_every_setting_is_of_one_section() -> None:
    names = [name for section in SECTIONS for name in section.model_fields]
    assert sorted(names) == sorted(Settings.model_fields)


def test_every_key_of_a_models_config_is_described() -> None:
    whole = config_type()
    sections = [
        whole,
        PreprocessConfig,
        TextConfig,
        SoundConfig,
        *(type(value) for _, value in whole() if isinstance(value, Section)),
    ]
    assert len(sections) == 22
    missing = [f"{section.__name__}.{name}" for section in sections for name, field in section.model_fields.items()
               if not (field.description or "").endswith((".", "#rrggbb."))]  # fmt: skip
    assert missing == []


def test_every_parameter_of_a_task_is_described(zoo: Client) -> None:
    text, document = (DOCS / "http.md").read_text(), zoo.get("/openapi.json").json()
    shown = {row["name"] for row in document["paths"]["/infer"]["post"]["parameters"]}
    assert shown == {"model", "version", "outputs", *parameter_names()}
    assert [name for name in parameter_names() if f"`{name}`" not in text] == []


def test_every_route_is_described(zoo: Client) -> None:
    text = (DOCS / "http.md").read_text() + (DOCS / "open-inference-protocol.md").read_text()
    document = zoo.get("/openapi.json").json()
    missing = [
        f"{method.upper()} {path}"
        for path, operations in document["paths"].items()
        for method in operations
        if f"`{method.upper()} {path}`" not in text
    ]
    assert missing == []
