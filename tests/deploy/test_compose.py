"""docker-compose.yml: a container that ends by itself, and writes where the image has room for it."""

from __future__ import annotations

import re

import yaml

from app.settings import Settings
from tests.docs.pages import ROOT

SERVICE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["pnnx-serve"]
IMAGE = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2]


def test_a_container_has_time_to_finish_what_is_in_flight() -> None:
    own = Settings()
    assert own.drain_delay_s + own.shutdown_timeout_s < float(SERVICE["stop_grace_period"].removesuffix("s"))


def test_what_is_mounted_is_where_the_image_looks() -> None:
    mounted = dict(each.split(":", 2)[1::-1] for each in SERVICE["volumes"])
    said = dict(re.findall(r"^ {4}(\w+)=(\S+)(?: \\)?$", IMAGE, re.M))
    assert mounted[said["PNNX_SERVE_CACHE_DIR"]] == "cache" and mounted["/models"] == "./model_store"
    assert SERVICE["tmpfs"] == [said["HOME"]] and SERVICE["read_only"] is True
