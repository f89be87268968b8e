"""Tests that the code of the pages prints what they show, and that their tables are complete."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import engine
from app.cli.verbs import VERBS
from app.models.folder.config import config_type
from engine.compiler.kernels.kernel import Kernel
from tests.app.client import Client, serving
from tests.app.sockets import listening
from tests.docs.pages import ADDRESS, ROOT, Reader, blocks, differences, page
from tests.engine.graph.build import INPUT, built, op


def test_tutorial_shows_the_real_output(reader: Reader) -> None:
    assert list(differences(page("docs/tutorial.md"), reader, "python", "console")) == []


@pytest.mark.parametrize("name", ["README.md", "clients/python/README.md"])
def test_python_code_of_the_page_runs_with_a_server(name: str, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    reader.module.x = np.zeros((2, 1, 16, 16), np.float32)  # type: ignore[attr-defined]  # what the readme leaves open
    with listening(ROOT / "model_store", threads=1) as front:
        reader.use_address(f"127.0.0.1:{front.port}")
        assert list(differences(page(name), reader, "python")) == []


@pytest.mark.parametrize("name", ["docs/graph.md", "docs/compiler.md", "docs/adding-a-kernel.md", "docs/python-api.md"])
def test_python_code_of_the_page_runs_in_a_clone(name: str, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    reader.module.x = np.zeros((2, 1, 16, 16), np.float32)  # type: ignore[attr-defined]  # what the readme leaves open
    assert list(differences(page(name), reader, "python")) == []


@pytest.mark.parametrize(
    "name",
    ["docs/tutorial.md", "docs/graph.md", "docs/compiler.md", "docs/decisions/README.md", "docs/architecture.md"]
    + ["docs/operating.md", "docs/scaling.md", "deploy/README.md"],
)
def test_links_of_the_page_lead_somewhere(name: str) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page(name))
    assert [target for target in targets if not (ROOT / name).parent.joinpath(target).exists()] == []


@pytest.fixture(scope="module")
def server() -> Iterator[Client]:
    with serving(ROOT / "model_store", threads=1) as client:
        yield client


def test_readme_shows_the_answer_to_its_curl_line(server: Client) -> None:
    command, _, shown = page("README.md").partition("$ curl ")[2].partition("```")[0].partition("\n")
    picture, kind, route = re.findall(rf"@(\S+) -H 'content-type: (\S+)' http://{ADDRESS}(\S+)", command)[0]
    answer = server.post(route, content=(ROOT / picture).read_bytes(), headers={"content-type": kind}).json()
    expected = json.loads(shown.replace(",…", ""))
    assert answer.keys() == expected.keys()
    assert answer["timing"].keys() == expected["timing"].keys()
    assert (answer["model"], answer["version"]) == (expected["model"], expected["version"])
    assert [each["label"] for each in answer["predictions"]] == [each["label"] for each in expected["predictions"]]
    best, shown_best = answer["predictions"][0], expected["predictions"][0]
    assert best == {**shown_best, "probability": pytest.approx(shown_best["probability"], rel=1e-4)}


@pytest.mark.parametrize("name", ["README.md", "docs/model-config.md", "docs/quick-start.md", "docs/tutorial.md"])
def test_configs_of_the_page_are_valid(name: str) -> None:
    configs = [block.text for block in blocks(page(name)) if block.language == "toml"]
    assert configs
    for config in configs:
        config_type().model_validate(tomllib.loads(config))


@pytest.fixture(scope="module")
def session() -> engine.Session:
    """Provide a session whose description has every key."""
    weight = np.eye(3, dtype=np.float32)
    graph = built(
        INPUT,
        op("nn.Linear", "fc", "0", "1", bias=False, in_features=3, out_features=3, weight=weight),
        op("pnnx.Expression", "squashed", "1", "2", expr="tanh(@0)"),
        op("aten::exponential", "drawn", "2", "3"),
        op("pnnx.Output", "out", "3"),
        _0=(1, 3),
        _2=(1, 4),
    )
    session = engine.Session(graph)
    session.prepare()
    return session


def explained(heading: str, name: str = "docs/graph.md") -> set[str]:
    """Return the first cells of the table under a heading of a page."""
    section = re.split(rf"^#+ {heading}$", page(name), flags=re.M)[1]
    return set(re.findall(r"^\| `(\w+)` \|", re.split(r"^#", section, flags=re.M)[0], re.M))


def keys(descriptions: Iterable[Mapping[str, Any]]) -> set[str]:
    return {key for description in descriptions for key in description}


@pytest.mark.parametrize(
    ("heading", "select"),
    [
        ("The graph", lambda graph: [graph]),
        ("An input or output", lambda graph: [*graph["inputs"], *graph["outputs"]]),
        ("An operator", lambda graph: graph["operators"]),
        ("An attribute", lambda graph: [each for op in graph["operators"] for each in op["attributes"].values()]),
        ("An operand", lambda graph: graph["operands"].values()),
        ("Totals", lambda graph: [graph["totals"]]),
        ("A warning", lambda graph: graph["warnings"]),
    ],
)
def test_the_page_explains_exactly_the_keys_of_a_description(
    heading: str, select: Callable[[Any], Iterable[Mapping[str, Any]]], session: engine.Session
) -> None:
    assert explained(heading) == keys(select(session.graph.describe()))


def test_the_page_explains_the_keys_that_a_session_adds(session: engine.Session) -> None:
    description = session.describe()
    # This graph is not of a bundle.
    assert explained("What a session adds") - {"bundle"} == description.keys() - session.graph.describe().keys()
    assert explained("Batch") == description["batch"].keys()


def test_the_page_explains_the_keys_about_compilation(session: engine.Session) -> None:
    description, plain = session.describe(), session.graph.describe()
    drawn = op("aten::exponential", "drawn", "0", "1")
    left_out = engine.Session(built(INPUT, drawn, op("pnnx.Output", "out", "1"), _0=(1, 3)))
    left_out.prepare()
    half = op("pnnx.Expression", "half", "0", "1", expr="mul(@0,0.5)")
    graph = built(INPUT, half, op("pnnx.Output", "out", "1"), _0=(None, 3))
    of_any_size = engine.Session(graph, backend="compiled")
    of_any_size.run([np.ones((2, 3), np.float32)])
    descriptions = [description, left_out.describe(), of_any_size.describe()]
    assert explained("Compiler") == set().union(*(each["compiler"] for each in descriptions))
    assert explained("A pass") == keys(description["compiler"]["passes"])
    added = keys(description["operators"]) - keys(plain["operators"])
    assert explained("How an operator runs") == added | {"kernel"}


def test_the_page_explains_the_keys_that_the_server_adds(server: Client, session: engine.Session) -> None:
    sent, described = server.get("/graph?model=digits&profile=true").json(), session.describe()
    added = sent.keys() - described.keys() | keys(sent["operators"]) - keys(described["operators"])
    assert explained("What the server adds") == added


def test_every_key_of_a_profile_is_explained(session: engine.Session) -> None:
    profile = session.run([np.zeros((1, 3), np.float32)], profile=True).profile
    assert profile is not None
    assert explained("A row of a profile") == keys(profile)


def test_every_kind_of_kernel_is_explained() -> None:
    kinds, classes = set(), [Kernel]
    for each in classes:
        classes += [made for made in each.__subclasses__() if made.__module__.startswith("engine.")]
        kinds |= {each.kind} if "kind" in vars(each) else set()
    assert explained("The kernels", "docs/compiler.md") == kinds


def test_every_key_of_a_kernel_is_explained(session: engine.Session) -> None:
    assert explained("A kernel of a profile") == keys(session.run([np.zeros((1, 3), np.float32)], profile=True).kernels)


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", *(f"docs/{each.name}" for each in sorted((ROOT / "docs").glob("*.md")))]
)
def test_files_named_on_the_page_exist(name: str) -> None:
    folders = ("engine", "app", "exporter", "tests", "docs", "examples", "benchmarks")
    there = [f"/{path.relative_to(ROOT).as_posix()}" for folder in folders for path in (ROOT / folder).rglob("*.py")]
    named = set(re.findall(r"`([\w/]+\.py)`", (ROOT / name).read_text()))
    assert [file for file in sorted(named) if not any(path.endswith(f"/{file}") for path in there)] == []


def test_the_page_of_the_command_line_has_every_verb() -> None:
    rows = re.findall(r"^\| `([\w-]+)[` ]", page("docs/command-line.md"), re.M)
    assert sorted(rows) == sorted(VERBS)
