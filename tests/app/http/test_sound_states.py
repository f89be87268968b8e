"""Models with states on whole sounds: windows run one after the other, each with the states after the one before."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.models.model import Model
from tests.app.client import Client, serving
from tests.app.sample_models import write_model
from tests.app.sound_models import wav

pytest.importorskip("soundfile", reason="needs the extra audio")
pytest.importorskip("soxr", reason="needs the extra audio")
DATA = Path(__file__).parents[2] / "data" / "sound"
RATE = 1_000


def write_sum(store: Path, name: str, config: str, *, states: str = 'out1 = "in1"') -> None:
    """Write a model of windows (N, 4) whose output is the sum of the means of all windows so far."""
    lines = [
        "pnnx.Input in0 0 1 0 #0=(?,4)f32",
        "pnnx.Input in1 0 1 1 #1=(?,1)f32",
        "torch.mean mean 1 1 0 2 dim=(1) keepdim=True #2=(?,1)f32",
        "pnnx.Expression sum 2 1 2 1 3 expr=add(@0,@1) #3=(?,1)f32",
        "pnnx.Expression copy 1 1 3 4 expr=mul(@0,1) #4=(?,1)f32",
        "prim::TupleConstruct all 2 1 3 4 5",
        "pnnx.Output out 1 0 5",
    ]
    text = f'task = "vad"\n[states]\n{states}\n[sound]\nsample_rate = {RATE}\n{config}'
    write_model(store, name, lines, config=text)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = tmp_path_factory.mktemp("states")
    write_sum(store, "sum", "window_s = 0.004\n")
    write_sum(store, "context", "window_s = 0.003\ncontext_s = 0.001\n")
    write_sum(store, "unknown", "window_s = 0.004\n", states='out7 = "in1"')
    write_sum(store, "window", "window_s = 0.1\n")
    with serving(store, threads=1) as found:
        yield found


def probabilities(client: Client, model: str, samples: list[float]) -> list[float]:
    body = wav(np.array(samples, np.float32), RATE)
    answer = client.post(f"/models/{model}/infer?probabilities=true", content=body)
    assert answer.status_code == 200, answer.text
    found: list[float] = answer.json()["predictions"]["probabilities"]
    return found


def test_each_window_gets_the_states_of_the_one_before(client: Client) -> None:
    assert probabilities(client, "sum", [1, 1, 1, 1, 0, 0, 0, 4, 2, 2]) == [1.0, 2.0, 3.0]
    assert probabilities(client, "sum", [1, 1, 1, 1]) == [1.0]  # each request begins anew


def test_a_window_has_the_samples_before_it_as_context(client: Client) -> None:
    # Rows (0, 4, 0, 0), (0, 4, 0, 4), (4, 0, 0, 0).
    assert probabilities(client, "context", [4, 0, 0, 4, 0, 4]) == [1.0, 3.0]
    assert probabilities(client, "context", [4, 0, 0, 4, 0, 4, 0]) == [1.0, 3.0, 4.0]


def test_tensors_may_hold_rows_or_states(client: Client) -> None:
    rows = [[1, 1, 1, 1], [2, 2, 2, 2]]
    assert client.infer("sum", {"in0": rows}).json()["outputs"]["out0"]["data"] == [1, 3]
    given = client.infer("sum", {"in0": rows[:1], "in1": [[5]]}).json()["outputs"]
    assert given["out0"]["data"] == [6] and given["out1"]["data"] == [6]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("unknown", "states: found 'out7', expected one of 'out0', 'out1'"),
        ("window", "sound.window_s: found 100 values with the context, expected 4, as input 'in0' has them"),
    ],
)
def test_tables_that_do_not_fit_are_reasons(client: Client, name: str, reason: str) -> None:
    assert reason in client.get(f"/models/{name}").json()["versions"][0]["reason"]


def test_silero_finds_the_speech_that_its_package_finds(tmp_path: Path) -> None:
    """See tests/data/sound/record_tasks.py."""
    found = importlib.util.find_spec("silero_vad")
    if found is None or found.origin is None:
        pytest.skip("needs the package silero-vad, whose model it serves: pip install --no-deps silero-vad")
    folder = tmp_path / "silero"
    (folder / "1").mkdir(parents=True)
    shutil.copy(Path(found.origin).parent / "data" / "silero_vad_16k_op15.onnx", folder / "1" / "model.onnx")
    (folder / "config.toml").write_text(
        'task = "vad"\n[states]\nstateN = "state"\n[sound]\nwindow_s = 0.032\ncontext_s = 0.004\n', encoding="utf-8"
    )
    expected = np.load(DATA / "silero.npz")["probabilities"]
    with serving(tmp_path, threads=1) as client:
        body = (DATA / "speech.flac").read_bytes()
        answer = client.post("/models/silero/infer?probabilities=true", content=body).json()["predictions"]
        model = client.plane.store.version("silero", None).model
    assert isinstance(model, Model) and model.session.compile_failure is None
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-4)
    assert [span["start"] for span in answer["spans"]] == [0.514, 4.482, 6.402, 7.042, 7.586]


def test_a_model_with_states_is_compiled_whatever_the_order_of_its_inputs(tmp_path: Path) -> None:
    write_sum(tmp_path, "sum", 'input = "in1"\nwindow_s = 0.001\n', states='out1 = "in0"')
    with serving(tmp_path, threads=1) as client:
        model = client.plane.store.version("sum", None).model
    assert isinstance(model, Model) and model.session.compile_failure is None
    assert list(model.example_inputs() or {}) == ["in0", "in1"]
