"""Models loaded and unloaded again and again while requests come: every answer is right, and nothing is left behind."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.models.model import Model
from tests.app.client import Client, serving
from tests.app.sample_models import elementwise, write_model
from tests.engine.pnnx.build import members, param
from tests.held import assert_no_more, held
from tests.nightly import IS_NIGHTLY
from tests.patience import until

# Enough to tell a leak a turn; more where there is time for it.
CYCLES = 50 if IS_NIGHTLY else 6
WIDTH = 1536
BYTES = 4 * WIDTH * WIDTH
LINES = [
    f"pnnx.Input in 0 1 0 #0=(?,{WIDTH})f32",
    f"nn.Linear l 1 1 0 1 bias=False in_features={WIDTH} out_features={WIDTH} @weight=({WIDTH},{WIDTH})f32",
    "pnnx.Output out 1 0 1",
]
ONES = {"inputs": [[1] * WIDTH]}
# Threads of the model that stays: its requests need none while it is quick, and all it may have on a busy machine.
STAYS = "scheduler-other"
# Not there, and on its way: what a client may be told while a model comes and goes.
AWAY = (404, 503)


def write(store: Path, value: int) -> None:
    """A model that multiplies; of some megabytes, so that one that stays is seen."""
    folder = store / "m" / "1"
    folder.mkdir(parents=True, exist_ok=True)
    weight = np.zeros((WIDTH, WIDTH), np.float32)
    np.fill_diagonal(weight, value)
    (folder / "model.pnnx.param").write_bytes(param(LINES))
    (folder / "model.pnnx.bin").write_bytes(members({"l.weight": weight.tobytes()}))


def resident_bytes() -> int:
    """Memory this process has, once what it freed was given back."""
    held()  # collects garbage
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Crowd:
    """Clients that ask on and on; what was answered wrongly."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._is_over = False
        self.wrong: list[Any] = []
        self.answered = 0

    async def ask(self) -> None:
        while not self._is_over:
            answer = await self._client.http.post("/models/m/infer", json=ONES)
            if answer.status_code == 200:
                values = set(answer.json()["outputs"]["out0"]["data"])
                self.answered += 1
                if len(values) != 1 or not values <= {1.0, 2.0}:  # of one model, and not of halves of two
                    self.wrong.append(values)
            elif answer.status_code not in AWAY:
                self.wrong.append((answer.status_code, answer.text))
            other = await self._client.http.post("/models/other/infer", json={"inputs": [[1, 2]]})
            if other.status_code != 200 or other.json()["outputs"]["out0"]["data"] != [4, 5]:
                self.wrong.append(other.text)
            await asyncio.sleep(0.005)  # what loads beside them has to get on as well

    def end(self) -> None:
        self._is_over = True


@pytest.mark.parametrize("backend", ["reference", "compiled"])
def test_models_loaded_and_unloaded_again_and_again_leave_nothing_behind(
    backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("httpx", "app"):  # what is said of each request is kept until the test is over, which takes megabytes
        caplog.set_level("ERROR", name)
    store = tmp_path / "store"
    write(store, 1)
    write_model(store, "other", elementwise("add(@0,3)", "(?,2)f32"))
    models: list[weakref.ref[Model]] = []
    options = {"reload_interval_s": 0, "backend": backend, "cache_dir": tmp_path / "cache"}

    async def cycle(client: Client, crowd: Crowd, value: int) -> None:
        async def call(verb: str) -> None:
            answer = await client.http.post(f"/v2/repository/models/m/{verb}")
            assert answer.status_code == 200, answer.text

        await asyncio.to_thread(write, store, value)
        await call("load")
        model = client.plane.store.version("m").model
        assert model is not None
        models.append(weakref.ref(model))
        del model
        answer = await client.http.post("/models/m/infer", json=ONES)
        assert answer.json()["outputs"]["out0"]["data"][0] == value
        before = crowd.answered
        while crowd.answered == before:
            await asyncio.sleep(0.001)
        if value == 2:  # every other time it is loaded beside the one that serves
            await call("unload")
            assert (await client.http.post("/models/m/infer", json=ONES)).status_code == 404

    async def play(client: Client, cycles: int) -> None:
        crowd = Crowd(client)
        asking = [asyncio.create_task(crowd.ask()) for _ in range(3)]
        for value in itertools.islice(itertools.cycle((1, 2)), cycles):
            await cycle(client, crowd, value)
        crowd.end()
        await asyncio.gather(*asking)
        assert not crowd.wrong and crowd.answered

    with serving(store, **options) as client:
        client.run(play(client, 4))
        before, bytes_before = held(STAYS), resident_bytes()
        client.run(play(client, 2 * CYCLES))
        assert_no_more(before, turns=CYCLES, but=STAYS)
        until(lambda: held() and not [each for each in models if each() is not None])
        # Each cycle loads twice; of one model a cycle that stays, all of this would be there.
        until(lambda: resident_bytes() - bytes_before < CYCLES * BYTES)
