"""The program as a whole: help, errors, statuses, streams."""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import time
from argparse import ArgumentParser
from pathlib import Path

import pytest

from app.cli import _parser, graph, main
from app.cli.verbs import VERBS
from app.progress import compiling, progress
from app.thread_limits import BLAS_VARIABLES
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]


def fail_with(exc: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the verb graph fail."""

    def execute(*_: object) -> int:
        raise exc

    monkeypatch.setattr(graph, "execute", execute)


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    """Status and stderr of a call argparse refuses."""
    with pytest.raises(SystemExit) as exit:
        main(argv)
    return int(exit.value.code or 0), capsys.readouterr().err


def run_program(*argv: str, **keys: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app", *argv]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **keys
    )  # type: ignore[call-overload]


def test_python_m_app_is_the_program() -> None:
    done = run_program("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: pnnx-serve" in done.stdout


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["--help"])
    assert exit.value.code == 0
    text = capsys.readouterr().out
    assert all(re.search(rf"^    {name}\s+{re.escape(verb.summary)}$", text, re.M) for name, verb in VERBS.items())


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_shows_an_example_of_it(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main([verb, "--help"])
    assert exit.value.code == 0
    assert f"Examples:\n  pnnx-serve {verb}" in capsys.readouterr().out


def test_version_names_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("pnnx-serve ")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--debug"], "the following arguments are required: VERB ('pnnx-serve --help'"),
        (["run", "--json"], "the following arguments are required: MODEL ('pnnx-serve run --help'"),
        (["graph", "m", "--format", "png"], "argument --format: invalid choice: 'png'"),
        (["check", "m", "--wat"], "unrecognized arguments: --wat"),
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = refused(capsys, *argv)
    assert status == 2
    assert text.startswith(f"pnnx-serve: error: {message}")
    assert text.count("\n") == 1


@pytest.mark.parametrize("verb", VERBS)
def test_flags_are_written_out(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = ArgumentParser()
    VERBS[verb].add_to(parser)
    flags = [flag for flag in parser._option_string_actions if flag.startswith("--") and flag != "--help"]
    needed = {"compare": ["--reference", "r"], "quantize": ["--samples", "s"]}.get(verb, [])
    wanted = {
        "serve": [],
        "models": [],
        "calibrate": [],
        "deploy": ["ray"],
        "cache": ["list"],
        "completion": ["zsh"],
        "export-onnx": ["m", "m.onnx"],
    }.get(verb, ["m"])
    shorts = [f"{short}=1" for short in sorted({flag[:-1] for flag in flags} - {*flags})]
    status, text = refused(capsys, verb, *wanted, *needed, *shorts)
    assert status == 2 and f"unrecognized arguments: {' '.join(shorts)}" in text
    assert flags


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["check", "--strict", "digits"], {"strict": True, "model": ["digits"]}),
        (["check", "--strict", "1"], {"strict": True, "model": ["1"]}),
        (["check", "--strict", "no", "1"], {"strict": False, "model": ["1"]}),
        (["check", "--strict=0", "--", "--strict", "on"], {"strict": False, "model": ["--strict", "on"]}),
        (["graph", "m", "--profile", "true", "--explain=off"], {"profile": True, "explain": False}),
        (["graph", "m", "--debug", "off"], {"debug": False}),
        (["compile", "--all", "yes", "--oci=false"], {"all": True, "oci": False}),
    ],
)
def test_booleans_of_all_verbs_take_values_and_names_of_models_are_none(
    argv: list[str], expected: dict[str, object]
) -> None:
    found = vars(_parser().parse_args(argv))
    assert {name: found.get(name, False) for name in expected} == expected


def test_an_unknown_flag_is_told_with_the_one_it_may_have_been_meant_for(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = refused(capsys, "serve", "--max-queu", "5")
    assert (status, text.partition(" ('pnnx")[0]) == (
        2, "pnnx-serve: error: unrecognized arguments: --max-queu 5 (did you mean '--max-queue'?)"
    )  # fmt: skip


def test_no_parser_of_the_project_takes_flags_that_are_cut_short() -> None:
    for folder in ("app", "benchmarks", "docs", "examples", "exporter", "tests/fuzz"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
                if isinstance(call.func, ast.Attribute) and call.func.attr == "ArgumentParser":
                    assert any(each.arg == "allow_abbrev" for each in call.keywords), path


def test_an_unforeseen_error_is_one_line_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(ZeroDivisionError("by\nzero"), monkeypatch)
    assert main(["graph", "m"]) == 1
    expected = "pnnx-serve: error: internal error: ZeroDivisionError: by\\nzero (--debug shows where)\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("argv", [["--debug", "graph", "m"], ["graph", "m", "--debug"]])
def test_debug_lets_the_traceback_out(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(ZeroDivisionError(), monkeypatch)
    with pytest.raises(ZeroDivisionError):
        main(argv)


def test_an_interruption_is_one_line_and_status_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(KeyboardInterrupt(), monkeypatch)
    assert main(["graph", "m"]) == 130
    assert capsys.readouterr() == ("", "pnnx-serve: interrupted\n")


def test_a_reader_that_goes_away_ends_the_program_quietly(store: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "app", "graph", "linear"]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=PATIENCE_S,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_missing_file_is_named_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(FileNotFoundError(2, "No such file or directory", "x.npy"), monkeypatch)
    assert main(["graph", "m"]) == 1
    assert capsys.readouterr().err == "pnnx-serve: error: x.npy: No such file or directory\n"


def test_an_unknown_setting_in_the_environment_is_a_wrong_call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PNNX_SERVE_PROT", "1")
    assert main(["check", "m"]) == 2
    assert "unknown setting PNNX_SERVE_PROT (did you mean 'PNNX_SERVE_PORT'?)" in capsys.readouterr().err


def test_messages_send_no_escape_to_the_terminal(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "\x1b[31mred"]) == 1
    assert "\\x1b[31mred" in capsys.readouterr().err


def test_numpy_is_not_imported_before_a_verb_has_settled_the_threads() -> None:
    code = "import sys, app.cli; sys.exit('numpy' in sys.modules or 'engine' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=PATIENCE_S, check=False).returncode == 0


def test_a_verb_sets_the_threads_of_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in BLAS_VARIABLES:
        monkeypatch.delenv(name)
    main(["run", "nothing.param", "--threads", "1"])
    assert [os.environ[name] for name in BLAS_VARIABLES] == ["1"] * len(BLAS_VARIABLES)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress("loading digits"):
        assert screen.getvalue() == "loading digits ..."
    assert screen.getvalue().endswith("\r\x1b[2K")


def test_short_progress_is_quiet_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("loading digits"):
        pass
    assert capsys.readouterr().err == ""


def test_long_progress_is_a_line_now_and_then_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("app.progress._REPEAT_S", 0.05)
    with progress("loading digits"):
        time.sleep(0.3)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 2 and set(lines) == {"loading digits ... 0 s"}


@pytest.mark.parametrize("argv", [[], ["run"], ["compile"], ["cache"]])
def test_a_verb_alone_prints_its_help(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert f"usage: {' '.join(['pnnx-serve', *argv])} [-h]" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_has_every_verb_and_its_flags(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in VERBS) and "top-k" in text and "max-queue" in text
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=text, text=True, check=True, timeout=PATIENCE_S)


def test_sizes_of_the_help_have_units(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    text = capsys.readouterr().out
    assert "Default: 64 GiB" in re.sub(r"\s+", " ", text) and text.index("Most used") < text.index("Connections")


@pytest.mark.parametrize("name", ["app", "engine"])
def test_a_package_that_hides_ours_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    command = [sys.executable, "-c", "import sys, pnnx_serve; sys.exit(pnnx_serve.main())"]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 1
    assert f"package '{name}': found {tmp_path / name}, expected {ROOT / name}. Remove its folder" in done.stderr


def test_progress_of_the_compiler_overwrites_itself_and_is_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with compiling("digits") as show:
        assert screen.getvalue() == ""
        show("lowering", 0, 1)
        show("assembling", 1, 3)
    wipe = "\r\x1b[2K"
    assert screen.getvalue() == f"compiling digits: lowering ...{wipe}compiling digits: assembling 2 of 3 ...{wipe}"
