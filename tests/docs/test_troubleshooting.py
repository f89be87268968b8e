"""docs/troubleshooting.md: settings, options, stages and metrics of its remedies exist."""

from __future__ import annotations

import re

from app.cli.verbs import VERBS
from app.metrics.collector import FAMILIES
from app.models.folder.config import config_type
from app.settings import Settings
from tests.docs.pages import page

TEXT = page("docs/troubleshooting.md")
# Keys of tables in config.toml, of answers, and names that are not this project's.
OTHER = {"multiple", "size", "resize", "color", "scale", "mean", "std", "max_bytes", "detail", "found", "expected"}
OTHER |= {
    "reason",
    "remark",
    "reference",
    "batching",
    "timing",
    "pnnx_client",
    "top",
    "app",
    "engine",
    "onnx",
    "labels",
}
STAGES = {"queue_ms", "decode_ms", "preprocess_ms", "infer_ms"}


def test_settings_and_metrics_of_the_page_are_there() -> None:
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)*)`", TEXT))
    known = {*Settings.model_fields, *config_type().model_fields, *FAMILIES, *OTHER, *STAGES}
    assert len(named & Settings.model_fields.keys()) > 10 and named - known == set()


def test_options_of_the_page_are_there() -> None:
    named = {flag.replace("-", "_") for flag in re.findall(r"--([a-z][a-z-]+)", TEXT)}
    assert named - Settings.model_fields.keys() == {
        "opt_level",
        "image",
        "profile",
        "against",
        "reference",
    }


def test_verbs_of_the_page_are_there() -> None:
    assert set(re.findall(r"`pnnx-serve ([a-z]+)", TEXT)) - VERBS.keys() == set()


def test_every_stage_of_an_answer_has_a_remedy() -> None:
    assert set(re.findall(r"^\| `(\w+_ms)` \|", TEXT, re.M)) == STAGES


def test_statuses_of_the_page_are_those_that_requests_get() -> None:
    statuses = set(re.findall(r"^\| (\d{3})", page("docs/http.md"), re.M))
    assert set(re.findall(r"^\| (\d{3})", TEXT, re.M)) <= statuses
