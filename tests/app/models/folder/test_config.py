"""config.toml: what it may say, and what is said of what it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import ConfigError
from app.models.folder.config import ModelConfig, config_type, read_config


def config(folder: Path, text: str) -> ModelConfig:
    (folder / "config.toml").write_text(text)
    return read_config(folder)


def test_every_key_is_optional_and_the_file_as_well(tmp_path: Path) -> None:
    assert read_config(tmp_path) == config(tmp_path, "") == config_type()()


def test_the_example_in_the_documentation_is_accepted(tmp_path: Path) -> None:
    text = (Path(__file__).parents[4] / "docs" / "model-config.md").read_text()
    example = text.partition("## All keys")[2].split("```toml\n")[1].split("```")[0]
    read = config(tmp_path, example)
    assert set(read.model_dump()) == set(config_type().model_fields)
    for section in ("preprocess", "classification", "detection", "segmentation", "image"):
        for key in type(getattr(read, section)).model_fields:
            assert f"{key} = " in example, f"docs/model-config.md does not show {section}.{key}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task = ", "config.toml: Invalid value (at "),
        ("taks = 'x'", "config.toml: taks: unknown key (did you mean 'task'?)"),
        ("[preprocess]\nsizes = [1, 2]", "config.toml: preprocess.sizes: unknown key (did you mean 'size'?)"),
        ("[preprocess]\nresize = 'fit'", "config.toml: preprocess.resize: expected 'stretch', 'crop', "),
        (
            "[preprocess]\nsize = [-1, 5]",
            "config.toml: preprocess.size.0: expected at least 0, ",
        ),
        (
            "[preprocess]\nsize = [0, 5]",
            "config.toml: preprocess: size: found [0, 5], expected a 0 with letterbox only",
        ),
        ("[preprocess]\nsize = [0, 0]\nresize = 'letterbox'", "config.toml: preprocess: size: found [0, 0], expected"),
        ("[preprocess]\nsize = 224", "config.toml: preprocess.size: "),
        ("[preprocess]\nstd = [0]", "config.toml: preprocess.std.0: expected more than 0, found 0"),
        ("[preprocess]\ncrop_fraction = 1.5", "config.toml: preprocess.crop_fraction: expected at most 1"),
        ("[classification]\ntop_k = 0", "config.toml: classification.top_k: expected at least 1"),
        ("[detection]\nbackground = -1", "config.toml: detection.background: expected at least 0"),
        ("[detection]\nscore_threshold = 2", "config.toml: detection.score_threshold: expected at most 1"),
        ("versions = 'newest'", "config.toml: versions.policy: expected 'latest', 'all' or 'specific', found"),
        ("versions = [0]", "config.toml: versions.specific.0: expected at least 1"),
        ("versions = [1000000000]", "config.toml: versions.specific.0: expected at most"),
        ("versions = []", "config.toml: versions: specific: found no version"),
        ("versions = 3", "config.toml: versions: found 3, expected 'latest', 'all', a list of numbers or a table"),
        ("[versions]\npolicy = 'specific'", "config.toml: versions: specific: found no version"),
        ("[versions]\npolicy = 'all'\nlatest = 2", "config.toml: versions: latest: expected with policy 'latest' only"),
        ("[versions]\nspecific = [1]", "config.toml: versions: specific: expected with policy 'specific' only"),
        ("[versions]\nlatest = 0", "config.toml: versions.latest: expected at least 1"),
        ("[versions]\nnewest = 1", "config.toml: versions.newest: unknown key"),
        ("[tags]\n3 = 1", "config.toml: tags.3: found '3', expected letters"),
        ("[tags]\n'../x' = 1", "config.toml: tags.../x: found"),
        ("[tags]\ncanary = 'new'", "config.toml: tags.canary: expected a whole number"),
        ("[tags]\ncanary = 0", "config.toml: tags.canary: expected at least 1"),
        ("precision = 'int4'", "config.toml: precision: expected 'float32', 'bf16' or 'auto'"),
        ("threads = 'many'", "config.toml: threads: expected a whole number"),
        ("x = 1\ny = 2", "config.toml: x: unknown key; y: unknown key"),
    ],
)
def test_what_is_wrong_is_named_by_its_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(tmp_path, text)
    assert str(caught.value).startswith(message), str(caught.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"config.toml: not UTF-8"):
        read_config(tmp_path)
