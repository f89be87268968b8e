"""Tests of the event stream and of its limit of listeners."""

from __future__ import annotations

import json

from app.http.routes.events import MAX_LISTENERS, pulse
from tests.app.client import Client


def test_an_event_has_every_model_with_how_many_answers_took_how_long(zoo: Client) -> None:
    told = json.loads(json.dumps(pulse(zoo.plane)))
    assert {row["name"] for row in told["models"]} == {entry.name for entry in zoo.plane.store.entries}
    ready = [version for row in told["models"] for version in row["versions"] if version["state"] == "ready"]
    assert ready and all(len(version["times"]) == len(told["bounds_s"]) + 1 for version in ready)


def test_a_crowd_of_listeners_is_refused_and_each_is_counted_until_it_is_gone(zoo: Client) -> None:
    pulses = zoo.app.state.pulses
    pulses.listeners = MAX_LISTENERS
    try:
        refused = zoo.get("/events")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
        pulses.listeners -= 1
        zoo.plane.is_draining = True  # a server that stops ends its streams
        assert zoo.get("/events").headers["content-type"].startswith("text/event-stream")
        assert pulses.listeners == MAX_LISTENERS - 1
    finally:
        zoo.plane.is_draining, pulses.listeners = False, 0
