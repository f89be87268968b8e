"""Tests that the settings, flags, routes and metrics of docs/coming-from.md exist."""

from __future__ import annotations

import re

import pytest

from app.http.main import create_app
from app.metrics.collector import FAMILIES
from app.models.folder.config import config_type
from app.scheduling.config import BatchingConfig
from app.settings import Settings
from tests.docs.pages import ROOT, page

TEXT = page("docs/coming-from.md")


def cells(*headings: str) -> list[str]:
    """Return the last cells of the tables below these headings."""
    found = []
    for heading in headings:
        for section in re.findall(rf"^### {re.escape(heading)}$(.*?)(?=^#|\Z)", TEXT, re.M | re.S):
            found += re.findall(r"\| ([^|\n]+) \|$", section, re.M)
    assert found
    return found


def test_metrics_of_the_page_are_there() -> None:
    named = re.findall(r"`((?:pnnx_serve|process)_\w+)", TEXT)
    assert named and [name for name in named if name not in FAMILIES] == []


def test_settings_and_keys_of_the_page_are_there() -> None:
    known = {
        *Settings.model_fields,
        *config_type().model_fields,
        *BatchingConfig.model_fields,
        "latest",
        "policy",
        "max_bytes",
    }
    named = re.findall(
        r"`([a-z]+(?:_[a-z]+)*)[` ]", " ".join(cells("config.properties", "config.pbtxt", "settings.json"))
    )
    assert len(named) > 20 and set(named) - known - {"timeout", "explicit", "versions"} == set()


def test_flags_of_the_page_are_there() -> None:
    named = re.findall(r"`--([a-z-]+)", " ".join(cells("Flags")))
    assert named and [name for name in named if name.replace("-", "_") not in Settings.model_fields] == []


@pytest.mark.filterwarnings("ignore")
def test_routes_of_the_page_are_there() -> None:
    paths = create_app(Settings(store=ROOT / "docs")).openapi()["paths"]
    named = re.findall(
        r"`(GET|POST) (/[\w/.]+)",
        " ".join(cells("Routes")).replace("NAME", "{name}").replace("{", "_x_").replace("}", "_y_"),
    )
    routes = [(method.lower(), path.replace("_x_", "{").replace("_y_", "}")) for method, path in named]
    unlisted = {"/openapi.json", "/metrics"} - paths.keys()
    assert (
        routes and [each for each in routes if each[1] not in unlisted and each[0] not in paths.get(each[1], {})] == []
    )
