"""Tests of docker-compose.yml: time to shut down, and mounts that match the image."""

from __future__ import annotations

import re

import yaml

from app.settings import Settings
from tests.docs.pages import ROOT

SERVICE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["pnnx-serve"]
IMAGE = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2]


def test_a_container_has_time_to_finish_its_requests() -> None:
    own = Settings()
    assert own.drain_delay_s + own.shutdown_timeout_s < float(SERVICE["stop_grace_period"].removesuffix("s"))


def test_mounts_are_the_folders_that_the_image_uses() -> None:
    mounted = dict(each.split(":", 2)[1::-1] for each in SERVICE["volumes"])
    said = dict(re.findall(r"^ {4}(\w+)=(\S+)(?: \\)?$", IMAGE, re.M))
    assert mounted[said["PNNX_SERVE_CACHE_DIR"]] == "cache" and mounted["/models"] == "./model_store"
    assert SERVICE["tmpfs"] == [said["HOME"]] and SERVICE["read_only"] is True
