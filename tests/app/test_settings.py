"""Tests of settings: their sources, and that each has an effect."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_origin

import numpy as np
import pytest

import engine
from app.log import configure_logging
from app.settings import LISTS, Settings, SettingsError, variable
from tests.app.client import Client, serving
from tests.app.environment import environment
from tests.app.grpc import test_hostile
from tests.app.http import test_access
from tests.app.http.server import test_connection
from tests.app.http.v2 import test_repository
from tests.app.models import test_recorder, test_verification
from tests.app.models.registry import test_warmup
from tests.app.pictures import npy, png
from tests.app.process import test_grpc_server, test_server, test_tls
from tests.app.remote import test_mirror
from tests.app.sample_models import TURNSTILE, elementwise, through, write_classifier, write_model
from tests.app.sound_models import wav, write_bands
from tests.app.tracing import test_spans

ONES = {"inputs": [[1.0, 1.0]]}


def test_the_environment_is_read() -> None:
    environ = {
        "PNNX_SERVE_PORT": "81",
        "PNNX_SERVE_STORE": "/x",
        "PNNX_SERVE_CORS_ORIGINS": "http://a, http://b",
        "X": "",
    }
    settings = Settings.from_env(environ)
    assert (settings.port, settings.store, settings.cors_origins) == (81, Path("/x"), ("http://a", "http://b"))


def test_an_empty_variable_is_no_variable() -> None:
    assert Settings.from_env({"PNNX_SERVE_PORT": ""}).port == Settings().port


def test_what_is_passed_wins_over_the_environment_and_none_passes_nothing() -> None:
    assert Settings.from_env({"PNNX_SERVE_PORT": "81"}, port=82).port == 82
    assert Settings.from_env({"PNNX_SERVE_PORT": "81"}, port=None).port == 81


def write_config(tmp_path: Path, text: str) -> dict[str, str]:
    """Write a settings file, and return the environment that names it."""
    (tmp_path / "serve.toml").write_text(text)
    return {"PNNX_SERVE_CONFIG": str(tmp_path / "serve.toml")}


def test_a_file_is_read_where_neither_flag_nor_variable_says_something(tmp_path: Path) -> None:
    text = (
        'port = 1\nhost = "a"\nstore = "/x"\nwarmup = false\ncors_origins = ["http://a", "http://b"]\nplugins = "p, q"'
    )
    environ = {**write_config(tmp_path, text), "PNNX_SERVE_PORT": "2", "PNNX_SERVE_HOST": "b", "PNNX_SERVE_STORE": ""}
    settings = Settings.from_env(environ, port=3)
    assert (settings.port, settings.host, settings.store, settings.warmup) == (3, "b", Path("/x"), False)
    assert (settings.cors_origins, settings.plugins) == (("http://a", "http://b"), ("p", "q"))
    assert settings.max_queue == Settings().max_queue


def test_removed_settings_are_ignored_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    environ = {**write_config(tmp_path, "max_headers = 7"), "PNNX_SERVE_RETRY_AFTER_S": "7"}
    assert Settings.from_env(environ) == Settings()
    assert caplog.messages == [
        f"the setting {name} does nothing any more, and the next version refuses it"
        for name in ("retry_after_s", "max_headers")
    ]


def test_every_setting_but_secrets_may_stand_in_a_file(tmp_path: Path) -> None:
    others = {name: field.default for name, field in Settings.model_fields.items() if field.default is not None}
    lines = [f"{name} = {json.dumps(value, default=str)}" for name, value in others.items()]
    assert Settings.from_env(write_config(tmp_path, "\n".join(lines))) == Settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_queu = 1", r"serve.toml': unknown setting 'max_queu' \(did you mean 'max_queue'\?\)"),
        ("a = 1\nb = 2", r"unknown setting 'a'; unknown setting 'b'"),
        ("[server]\nport = 1", r"unknown setting 'server'"),
        ("config = 'other.toml'", r"unknown setting 'config'"),
        ("port = 70000", r"port \(config\): .*expected at most 65535, found 70000"),
        ("port = true", r"port \(config\): found true, expected no flag"),
        ("warmup = 'maybe'", r"warmup \(config\): .*found 'maybe'"),
        ("plugins = 5", r"plugins \(config\): "),
        ("port = ", r"serve.toml': Invalid value"),
        ("port = 1\nport = 2", r"serve.toml': "),
        ("keys = 'infer: 0123456789abcdef'", r"keys is a secret, expected it in PNNX_SERVE_KEYS$"),
        ("tls_key_password = 'x'", r"tls_key_password is a secret"),
    ],
)
def test_slips_of_the_pen_in_a_file_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Settings.from_env(write_config(tmp_path, text))


def test_every_setting_of_several_names_takes_them_by_comma() -> None:
    names = [name for name, field in Settings.model_fields.items() if get_origin(field.annotation) is tuple]
    assert sorted(names) == sorted(LISTS)


@pytest.mark.parametrize("control", ["poll", "none", None])
def test_setting_load_model_is_refused_where_it_would_do_nothing(control: str | None) -> None:
    environ = {"PNNX_SERVE_LOAD_MODEL": "a,b"} | ({} if control is None else {"PNNX_SERVE_MODEL_CONTROL": control})
    with pytest.raises(SettingsError, match=f"load_model .*found model_control {control or 'poll'}, expected explicit"):
        Settings.from_env(environ)
    assert Settings.from_env({**environ, "PNNX_SERVE_MODEL_CONTROL": "explicit"}).load_model == ("a", "b")
    assert Settings.from_env({**environ, "PNNX_SERVE_LOAD_MODEL": ""}).load_model == ()


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    environ = write_config(tmp_path, "")
    assert Settings.from_env(environ) == Settings()
    (tmp_path / "serve.toml").write_bytes(b"\xff")
    with pytest.raises(SettingsError, match=r"serve\.toml': .*utf-8"):
        Settings.from_env(environ)
    with pytest.raises(SettingsError, match=r"^config '.*': Is a directory"):
        Settings.from_env({"PNNX_SERVE_CONFIG": str(tmp_path)})
    with pytest.raises(SettingsError, match=r"^config 'nowhere.toml': No such file or directory$"):
        Settings.from_env({"PNNX_SERVE_CONFIG": "nowhere.toml"})


def test_settings_survive_the_way_through_the_environment() -> None:
    settings = Settings(store=Path("s"), threads=3, cors_origins=("a", "b"), warmup=False, request_timeout_s=0.5)
    assert Settings.from_env(environment(settings)) == settings


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"PNNX_SERVE_PROT": "1"}, r"unknown setting PNNX_SERVE_PROT \(did you mean 'PNNX_SERVE_PORT'\?\)"),
        ({"PNNX_SERVE_PORT": "x"}, r"port \(PNNX_SERVE_PORT\): expected a whole number.*found 'x'"),
        ({"PNNX_SERVE_PORT": "70000"}, r"port \(PNNX_SERVE_PORT\): .*expected at most 65535, found '70000'"),
        ({"PNNX_SERVE_LOG_LEVEL": "loud"}, r"log_level \(PNNX_SERVE_LOG_LEVEL\): .*'debug'"),
    ],
)
def test_slips_of_the_pen_are_refused(environ: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Settings.from_env(environ)


def test_the_variables_kubernetes_makes_for_a_service_of_this_name_are_not_ours() -> None:
    environ = {
        "PNNX_SERVE_SERVICE_HOST": "10.0.0.1", "PNNX_SERVE_SERVICE_PORT": "80", "PNNX_SERVE_SERVICE_PORT_HTTP": "80",
        "PNNX_SERVE_PORT": "tcp://10.0.0.1:80", "PNNX_SERVE_PORT_80_TCP": "tcp://10.0.0.1:80",
        "PNNX_SERVE_PORT_80_TCP_ADDR": "10.0.0.1", "PNNX_SERVE_PORT_80_TCP_PROTO": "tcp",
    }  # fmt: skip
    assert Settings.from_env(environ) == Settings()


def two(store: Path, **settings: Any) -> dict[str, Any]:
    """Return the rows of /models for a store of two classifiers."""
    write_classifier(store, "first")
    write_classifier(store, "second")
    with serving(store, **settings) as client:
        return {row["name"]: row for row in client.get("/models").json()["models"]}


def test_setting_store_is_where_models_come_from(tmp_path: Path) -> None:
    assert set(two(tmp_path)) == {"first", "second"}


def test_setting_default_model_answers_requests_that_name_none(tmp_path: Path) -> None:
    assert [row["default"] for row in two(tmp_path, default_model="second").values()] == [False, True]


def test_setting_default_model_must_be_in_the_store(tmp_path: Path) -> None:
    write_classifier(tmp_path)
    with serving(tmp_path, default_model="nope") as client:
        response = client.get("/health/ready")
    assert response.status_code == 503 and "the default model 'nope' is not in the store" in response.text


def test_setting_plugins_is_loaded_before_the_models(tmp_path: Path) -> None:
    with (
        pytest.raises(SettingsError, match="plugin 'nothing.py' cannot be loaded: No such file"),
        serving(tmp_path, plugins=("nothing.py",)),
    ):
        pass


def test_setting_backend_is_handed_to_the_engine(tmp_path: Path) -> None:
    write_classifier(tmp_path)
    with serving(tmp_path, backend="reference") as client:
        assert client.get("/models/shades").json()["versions"][0]["backend"] == "reference"


def convolving(store: Path) -> None:
    """Write a convolution that is large enough for Winograd's algorithm."""
    params = "bias=False in_channels=32 out_channels=32 kernel_size=(3,3) stride=(1,1) padding=(1,1) dilation=(1,1)"
    lines = through("nn.Conv2d", "(1,32,28,28)f32")
    lines[1] += f" {params} groups=1 padding_mode=zeros @weight=(32,32,3,3)f32"
    write_model(store, "blur", lines, {"op.weight": np.ones((32, 32, 3, 3), np.float32)})


def compiler(store: Path, **settings: Any) -> dict[str, Any]:
    """Return what GET /graph reports about the compilation of the model."""
    with serving(store, **settings) as client:
        found: dict[str, Any] = client.get("/graph").json()["compiler"]
    return found


def test_setting_winograd_is_handed_to_the_engine(tmp_path: Path) -> None:
    convolving(tmp_path)
    kernels = []
    for winograd in ("auto", "off"):
        with serving(tmp_path, winograd=winograd) as client:
            kernels.append(client.get("/graph").json()["operators"][1]["kernel"])
    assert kernels == ["winograd", "conv"]


def test_setting_passes_off_leaves_passes_out(tmp_path: Path) -> None:
    convolving(tmp_path)
    ran = [row["name"] for row in compiler(tmp_path)["passes"]]
    left = [row["name"] for row in compiler(tmp_path, passes_off=("fold_batch_norm", "expression_fusion"))["passes"]]
    assert left == [name for name in ran if name not in ("fold_batch_norm", "expression_fusion")]
    with serving(tmp_path, passes_off=("nothing",)) as client:
        assert "unknown pass: found nothing" in client.get("/models/blur").json()["reason"]


def test_setting_bundles_says_whether_a_folder_with_a_manifest_is_more_than_its_pair(tmp_path: Path) -> None:
    convolving(tmp_path)
    (tmp_path / "blur" / "1" / "manifest.json").write_text("{}")
    states = []
    for bundles in (True, False):
        with serving(tmp_path, bundles=bundles) as client:
            states.append(client.get("/models/blur").json())
    assert "manifest.json: not the manifest of a bundle" in states[0]["reason"] and states[1]["state"] == "ready"


def test_settings_cache_and_cache_dir_say_whether_and_where_code_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.compiler.builder.is_unchanged", lambda: True)
    store, folder = tmp_path / "store", tmp_path / "cache"
    convolving(store)
    found = [compiler(store, cache_dir=folder, cache=cache)["is_cached"] for cache in (False, True, True)]
    assert found == [False, False, True]
    assert any(each.suffix == ".blueprint" for each in folder.iterdir())


def test_an_unset_option_has_the_engines_default() -> None:
    ours, theirs = Settings(), engine.Options()
    for name in ("backend", "threads", "winograd", "cache_max_bytes", "instances_max_bytes"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert frozenset(ours.passes_off) == theirs.passes_off


def test_setting_cache_max_bytes_bounds_what_is_kept(tmp_path: Path) -> None:
    store, folder = tmp_path / "store", tmp_path / "cache"
    convolving(store)
    assert compiler(store, cache_dir=folder, cache_max_bytes=10)["entry_bytes"] == 0
    assert not folder.exists() or list(folder.iterdir()) == []


def test_setting_threads_limits_each_run(tmp_path: Path) -> None:
    write_classifier(tmp_path)
    with serving(tmp_path, threads=1) as client:
        assert client.plane.budget.threads == 1
        assert client.get("/models/shades").json()["versions"][0]["threads"] == 1


def test_setting_warmup_finds_out_at_once_whether_a_model_runs(tmp_path: Path) -> None:
    write_classifier(tmp_path, config='task = "classification"\nlabels = ["only one"]')
    for warmup, status in ((True, 503), (False, 200)):
        with serving(tmp_path, warmup=warmup) as client:
            assert client.get("/health/ready").status_code == status


@pytest.mark.parametrize(
    ("text", "expected"), [("64 GiB", 64 << 30), ("1.5MB", 1_500_000), ("8kib", 8192), ("123", 123), ("7 bytes", 7)]
)
def test_sizes_have_units(text: str, expected: int) -> None:
    assert Settings.from_env({"PNNX_SERVE_STORE_MAX_BYTES": text}).store_max_bytes == expected


@pytest.mark.parametrize(("limit", "compiles"), [(0, False), (2**30, True)])
def test_setting_instances_max_bytes_bounds_what_is_compiled_for_other_shapes(
    tmp_path: Path, limit: int, compiles: bool
) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))
    with serving(tmp_path, cache=False, instances_max_bytes=limit) as client:
        end = time.monotonic() + (120 if compiles else 0.3)
        while not (held := _compiled_shapes(client)) and time.monotonic() < end:
            assert client.infer("one", [[1, 2]] * 3).status_code == 200
    assert bool(held) is compiles


def _compiled_shapes(client: Client) -> list[object]:
    """Return the shapes that the model `one` holds compiled code for."""
    found: list[object] = (client.get("/models/one/graph").json().get("compiler") or {"shapes": []})["shapes"]
    return found


def test_setting_load_timeout_s_gives_up_a_model_that_takes_longer(tmp_path: Path) -> None:
    write_model(tmp_path, "stuck", through("test.Wait", "(1,2)f32"))
    with serving(tmp_path, load_timeout_s=0.2) as client:
        TURNSTILE.let_through_until(lambda: not client.plane.store._loaders.is_busy)
        reason = client.get("/models/stuck").json()["reason"]
    assert reason == "version 1: not loaded within 0.2 seconds (load_timeout_s)"


def test_setting_strict_refuses_a_model_that_contradicts_its_file(tmp_path: Path) -> None:
    lines = [line.replace("out 1 0 1 #1=(1,2)", "out 1 0 1 #1=(1,3)") for line in through("nn.ReLU", "(1,2)f32")]
    write_model(tmp_path, "odd", [lines[0], lines[1].replace("#1=(1,2)", "#1=(1,3)"), lines[2]])
    with serving(tmp_path) as client:
        assert client.get("/health/ready").status_code == 200
        assert len(client.get("/graph").json()["warnings"]) == 1
    with serving(tmp_path, strict=True) as client:
        assert client.get("/health/ready").status_code == 503
        reason = client.get("/models/odd").json()["reason"]
    assert "op (nn.ReLU): operand '1' contradicts the file: found [1, 2] float32, expected [1, 3] float32" in reason


@pytest.mark.parametrize(("in_flight", "queue"), [(1, 0), (2, 0), (1, 2)])
def test_settings_max_in_flight_and_max_queue_bound_what_is_pending(tmp_path: Path, in_flight: int, queue: int) -> None:
    write_model(tmp_path, "wait", through("test.Wait", "(1,2)f32"))
    with serving(tmp_path, warmup=False, max_in_flight=in_flight, max_queue=queue) as client:

        async def flood() -> list[int]:
            tasks = [asyncio.create_task(client.http.post("/infer", json=ONES)) for _ in range(in_flight + queue)]
            for _ in range(in_flight):
                await asyncio.to_thread(TURNSTILE.wait_until_entered)
            assert (await client.http.get("/models/wait")).json()["versions"][0]["running"] == in_flight
            refused = await client.http.post("/infer", json=ONES)
            TURNSTILE.let_through(in_flight + queue)
            answers = [await task for task in tasks]
            for _ in range(queue):
                TURNSTILE.wait_until_entered()
            return [refused.status_code, *(answer.status_code for answer in answers)]

        assert client.run(flood()) == [429, *[200] * (in_flight + queue)]


def test_setting_max_wait_s_refuses_who_would_wait_longer(tmp_path: Path) -> None:
    write_model(tmp_path, "wait", through("test.Wait", "(1,2)f32"))
    with serving(tmp_path, warmup=False, max_in_flight=1, max_wait_s=2.0) as client:
        client.plane.store.version("wait").scheduler.step_times.ran(5.0, 1)

        async def two() -> list[int]:
            first = asyncio.create_task(client.http.post("/infer", json=ONES))
            await asyncio.to_thread(TURNSTILE.wait_until_entered)
            refused = await client.http.post("/infer", json=ONES)
            TURNSTILE.let_through()
            return [refused.status_code, int(refused.headers["retry-after"]), (await first).status_code]

        assert client.run(two()) == [429, 3, 200]


def test_setting_request_timeout_s_ends_waiting_with_504(tmp_path: Path) -> None:
    write_model(tmp_path, "wait", through("test.Wait", "(1,2)f32"))
    with serving(tmp_path, warmup=False, request_timeout_s=0.05) as client:
        response = client.post("/infer", json=ONES)
        scheduler = client.plane.store.version("wait").scheduler
        TURNSTILE.let_through_until(lambda: scheduler.is_empty and not scheduler.is_busy)
    assert (response.status_code, response.json()["error"]["code"]) == (504, "deadline_exceeded")


def test_setting_request_timeout_s_covers_a_body_that_does_not_arrive(tmp_path: Path) -> None:
    async def trickle() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(20)

    with serving(tmp_path, request_timeout_s=0.05) as client:
        response = client.post("/infer", content=trickle())
    assert (response.status_code, response.headers["connection"]) == (504, "close")
    assert response.json()["error"]["message"] == "the body did not arrive within the request's time"


def test_setting_max_body_bytes_is_announced_and_counted(tmp_path: Path) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b" " * 10

    with serving(tmp_path, max_body_bytes=100) as client:
        announced = client.post("/infer", content=b" " * 101)
        counted = client.post("/infer", content=chunks())
        for response, found in ((announced, 101), (counted, 110)):
            assert (response.status_code, response.headers["connection"]) == (413, "close")
            assert response.json()["error"]["detail"] == {"found": found, "limit": 100}


def test_setting_max_elements_bounds_a_tensor(tmp_path: Path) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))
    with serving(tmp_path, max_elements=4) as client:
        statuses = [client.post("/infer", content=npy(np.zeros((n, 2), np.float32))).status_code for n in (2, 3)]
    assert statuses == [200, 413]


def test_setting_max_images_bounds_a_batch_of_pictures(tmp_path: Path) -> None:
    write_classifier(tmp_path)
    with serving(tmp_path, max_images=1) as client:
        files = [("file", ("x.png", png()))]
        statuses = [client.post("/infer", files=files * count).status_code for count in (1, 2)]
    assert statuses == [200, 413]


def test_setting_max_sound_s_bounds_a_sound(tmp_path: Path) -> None:
    write_bands(tmp_path)
    with serving(tmp_path, max_sound_s=0.5) as client:
        bodies = [wav(np.zeros(samples, np.int16)) for samples in (8_000, 8_001)]
        statuses = [client.post("/models/bands/infer", content=body).status_code for body in bodies]
    assert statuses == [200, 413]


def test_setting_max_pixels_bounds_a_picture(tmp_path: Path) -> None:
    write_classifier(tmp_path)
    with serving(tmp_path, max_pixels=64) as client:
        headers = {"content-type": "image/png"}
        statuses = [client.post("/infer", content=png(8, n), headers=headers).status_code for n in (8, 9)]
    assert statuses == [200, 413]


def test_setting_cors_origins_lets_those_pages_call_and_no_others(tmp_path: Path) -> None:
    write_classifier(tmp_path)
    origin = {"origin": "http://page"}
    with serving(tmp_path) as client:
        assert "access-control-allow-origin" not in client.get("/models", headers=origin).headers
    with serving(tmp_path, cors_origins=("http://page",)) as client:
        assert client.get("/models", headers=origin).headers["access-control-allow-origin"] == "http://page"
        assert "access-control-allow-origin" not in client.get("/models", headers={"origin": "http://other"}).headers


def test_setting_allowed_hosts_names_what_the_server_is_called_by(tmp_path: Path) -> None:
    write_classifier(tmp_path)
    host = {"host": "models.example.org"}
    for allowed, status in (((), 403), (("models.example.org",), 200)):
        with serving(tmp_path, allowed_hosts=allowed) as client:
            assert client.get("/models", headers=host).status_code == status


@pytest.mark.parametrize(("whose", "expected"), [("used", {"one"}), ("all", {"one", "idle"}), ("none", set())])
def test_setting_metrics_histograms_says_whose_there_are(whose: str, expected: set[str], tmp_path: Path) -> None:
    for name in ("one", "idle"):
        write_model(tmp_path, name, elementwise("add(@0,1)", "(?,2)f32"))
    with serving(tmp_path, metrics_histograms=whose) as client:
        assert client.infer("one", [[1, 2]]).status_code == 200
        page = client.get("/metrics").text
    assert set(re.findall(r'_bucket\{.*model="(\w+)"', page)) == expected
    assert 'pnnx_serve_requests_total{model="idle",outcome="ok",version="1"} 0.0' in page


def test_setting_metrics_triton_names_adds_what_dashboards_made_for_it_ask_for(tmp_path: Path) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))
    for enabled in (False, True):
        with serving(tmp_path, metrics_triton_names=enabled) as client:
            assert client.infer("one", [[1, 2], [3, 4]]).status_code == 200
            page = client.get("/metrics").text
        assert ('nv_inference_count{model="one",version="1"} 2.0' in page) is enabled
        assert ('nv_inference_request_success{model="one",version="1"} 1.0' in page) is enabled
        assert ("nv_inference_compute_infer_duration_us{" in page) is enabled


def test_setting_access_log_writes_a_line_a_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for enabled in (False, True):
        caplog.clear()
        with serving(tmp_path, access_log=enabled) as client:
            client.get("/models")
            client.get("/health/live")
        assert ("GET /models 200" in caplog.text) is enabled
        assert "GET /health/live 200" not in caplog.text


@pytest.mark.parametrize(("level", "lines"), [("info", 2), ("warning", 1), ("error", 0)])
def test_settings_log_level_and_log_format_shape_the_log(
    level: str, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    handlers, before = logging.root.handlers[:], logging.root.level
    try:
        configure_logging(level, "json")
        logging.getLogger("x").info("one")
        logging.getLogger("x").warning("two", extra={"model": "m"})
        written = io.StringIO(capsys.readouterr().err).readlines()
    finally:
        logging.root.handlers[:], logging.root.level = handlers, before
    assert len(written) == lines
    assert all(json.loads(line)["logger"] == "x" for line in written)


def test_setting_max_bytes_in_flight_bounds_what_a_request_may_take(tmp_path: Path) -> None:
    write_model(tmp_path, "m", elementwise("add(@0,1)", "(?,3)f32"))
    with serving(tmp_path, max_bytes_in_flight=10_000) as client:
        assert client.infer("m", [[1, 2, 3]]).status_code == 200
        assert client.infer("m", [[1, 2, 3]] * 100).status_code == 413


def test_setting_shared_memory_lets_clients_register_some(tmp_path: Path) -> None:
    for is_on in (False, True):
        with serving(tmp_path, shared_memory=is_on) as client:
            assert ("system_shared_memory" in client.get("/v2").json()["extensions"]) is is_on
            answer = client.post("/v2/systemsharedmemory/region/r/register", json={"key": "/none", "byte_size": 1})
            assert ("not enabled" in answer.json()["error"]) is not is_on


def test_every_setting_has_a_test_of_its_effect() -> None:
    others = (
        test_access,
        test_grpc_server,
        test_connection,
        test_hostile,
        test_mirror,
        test_recorder,
        test_repository,
        test_server,
        test_spans,
        test_tls,
        test_verification,
        test_warmup,
    )
    here = [*globals(), *(name for module in others for name in vars(module))]
    claims = " ".join(name for name in here if name.startswith(("test_setting_", "test_settings_")))
    assert [name for name in Settings.model_fields if name not in claims] == []


def test_variables_are_named_after_the_settings() -> None:
    assert variable("max_queue") == "PNNX_SERVE_MAX_QUEUE"


def test_setting_reload_interval_s_says_how_often_files_are_looked_at(tmp_path: Path) -> None:
    for interval_s, is_watched in ((0.0, False), (3600.0, True)):
        others = set(threading.enumerate())
        with serving(tmp_path, reload_interval_s=interval_s):
            started = [each for each in threading.enumerate() if each not in others]
            assert ("watch" in [each.name for each in started]) == is_watched
