"""A task is added in one place: all else is put together from the table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from app.errors import ConfigError
from app.images.placement import Placement
from app.models.folder.config import read_config
from app.schema import Body, Fraction, Section
from app.tasks.registry import TASKS
from app.tasks.task import Outputs, Prediction, Task
from tests.app.client import serving
from tests.app.sample_models import elementwise, write_model


class CountingConfig(Section):
    at_least: Fraction = 0.5


class CountBody(Body):
    count: int


class CountingTask(Task[CountingConfig]):
    """Task that counts large values."""

    NAME = "counting"
    CONFIG = CountingConfig
    PARAMETERS = {"at_least": "what counts as large"}
    FINDING = CountBody
    EXAMPLE = {"predictions": {"count": 3}}

    def predict(
        self, outputs: Outputs, placements: Sequence[Placement], options: CountingConfig
    ) -> Sequence[Prediction]:
        return [{"count": int((row >= options.at_least).sum())} for row in outputs["out0"]]


@pytest.fixture(autouse=True)
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, CountingTask.NAME, CountingTask)


def test_a_task_of_the_table_is_served_with_its_config_and_its_parameters(tmp_path: Path) -> None:
    config = 'task = "counting"\n[counting]\nat_least = 0.25\n'
    write_model(tmp_path, "large", elementwise("mul(@0,1)", "(?,3)f32"), config=config)
    with serving(tmp_path) as client:
        body = {"inputs": [[0.0, 0.5, 1.0]]}
        assert client.post("/infer", json=body).json()["predictions"] == {"count": 2}
        assert client.post("/infer?at_least=0.75", json=body).json()["predictions"] == {"count": 1}
        assert client.post("/infer?at_least=2", json=body).status_code == 400
        assert (
            client.post("/infer?at_last=1", json=body).json()["error"]["message"].endswith("(did you mean 'at_least'?)")
        )


def test_a_task_of_the_table_is_in_the_openapi_document(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        document = client.get("/openapi.json").json()
    operation = document["paths"]["/infer"]["post"]
    shown = {row["name"]: (row["schema"], row["description"]) for row in operation["parameters"]}
    assert shown["at_least"] == ({"type": "number"}, "counting: what counts as large")
    answer = operation["responses"]["200"]["content"]["application/json"]
    assert answer["examples"]["counting"]["value"]["predictions"] == {"count": 3}
    assert document["components"]["schemas"]["CountBody"]["required"] == ["count"]
    assert "#/components/schemas/CountBody" in str(document["components"]["schemas"]["InferBody"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[counting]\nat_least = 2",
            "config.toml: counting.at_least: expected at most 1, found 2",
        ),
        ("[counting]\nleast = 1", "config.toml: counting.least: unknown key (did you mean 'at_least'?)"),
        ("[countin]", "config.toml: countin: unknown key (did you mean 'counting'?)"),
    ],
)
def test_a_task_of_the_table_has_its_keys_checked(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(tmp_path)
    assert str(caught.value) == message
