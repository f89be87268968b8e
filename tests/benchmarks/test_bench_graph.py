"""Command line, catalogue, check and turns of bench_graph; nothing is timed, torch is not needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bench_graph import main, parser, plan_from
from benchmarks.files import Files
from benchmarks.networks import NETWORKS, select
from benchmarks.record import OURS
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]


def test_everything_is_measured_unless_one_says_otherwise() -> None:
    options = parser().parse_args([])
    assert (options.threads, options.batch) == ([1, 2], [1, 8])
    assert plan_from(options).engines == (OURS, "onnxruntime", "openvino", "ncnn", "torch")


@pytest.mark.parametrize(
    ("arguments", "busy"), [([], ()), (["--busy"], (OURS,)), (["--busy", "ncnn", "torch"], ("ncnn", "torch"))]
)
def test_busy_alone_means_ours(arguments: list[str], busy: tuple[str, ...]) -> None:
    assert plan_from(parser().parse_args(arguments)).busy == busy


def test_check_only_takes_no_turns() -> None:
    assert plan_from(parser().parse_args(["--check-only"])).rounds == 0


@pytest.mark.parametrize(
    "arguments",
    [["--threads", "0"], ["--batch", "x"], ["--engines", "unknown"], ["--check-only", "--export-only"]],
    ids=" ".join,
)
def test_command_line_refuses(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(arguments)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_busy_without_two_threads_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--busy", "--threads", "1"])
    assert "--busy is measured at 2 threads" in capsys.readouterr().err


def test_a_group_stands_for_its_networks() -> None:
    assert {network.group for network in select([])} == {"vision"}
    assert [network.name for network in select(["transformers", "espcn"])][0] == "espcn"
    assert select(["all"]) == list(NETWORKS.values())


def test_unknown_network_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no such network: resnet17; known are resnet18, .*, awkward, all"):
        select(["resnet17"])


def test_files_of_other_batches_have_a_suffix() -> None:
    files = Files(Path("folder"))
    assert (files.onnx(1).name, files.onnx(8).name) == ("model.onnx", "model_b8.onnx")
    assert (files.input(1).name, files.output(8).name) == ("input.npy", "output_b8.npy")


def test_every_file_is_missing_from_an_empty_folder(tmp_path: Path) -> None:
    files = Files(tmp_path)
    assert {path.name for path in files.missing([8])} == {
        "model.state.pt", "model.pnnx.param", "model.pnnx.bin", "input.npy", "output.npy",
        "model_b8.onnx", "input_b8.npy", "output_b8.npy",
    }  # fmt: skip


@pytest.mark.parametrize("how", [["-m", "benchmarks.bench_graph"], ["benchmarks/bench_graph.py"]], ids=" ".join)
def test_script_starts_either_way(how: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, *how, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    assert "--networks" in done.stdout


def test_script_starts_without_torch() -> None:
    code = "import sys; import benchmarks.bench_graph; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=PATIENCE_S).returncode == 0
