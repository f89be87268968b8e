"""Runner of the code blocks of a page, which compares their output with the page.

All ``python`` blocks of a page run in one module. A ``text`` block right after one is its output, or the last line of
its exception. A ``console`` block has commands after ``$ `` with their output. ``…`` in an output matches anything.
A server that a page starts gets a free port.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
ADDRESS = "127.0.0.1:8000"
"""Address of the server as pages write it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page; ``line`` is the line of its fence."""

    language: str
    text: str
    line: int
    follows: str
    """Text between this block and the one before it."""


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str) -> list[Block]:
    found, end = [], 0
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(language=match[1], text=match[2], line=line, follows=text[end : match.start()]))
        end = match.end()
    return found


def fits(shown: str, printed: str) -> bool:
    """Return whether an output matches the page, ignoring blanks at the ends of lines."""
    shown, printed = ("\n".join(line.rstrip() for line in text.strip("\n").split("\n")) for text in (shown, printed))
    return re.fullmatch(".*?".join(map(re.escape, shown.split("…"))), printed, re.S) is not None


class Reader:
    """Executor of the blocks of a page, in one module and one folder."""

    def __init__(self, module: types.ModuleType, environ: Mapping[str, str]) -> None:
        self.module = module
        self._environ = environ
        self._address = ADDRESS
        self._exits = contextlib.ExitStack()

    def close(self) -> None:
        self._exits.close()

    def use_address(self, address: str) -> None:
        """Use the server at this address from here on."""
        self._address = address

    def python(self, block: Block) -> str:
        """Return what the block prints, or the last line of the traceback."""
        code = "\n" * block.line + block.text.replace(ADDRESS, self._address)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(code, "page", "exec"), self.module.__dict__)
            except Exception as error:
                print(f"{type(error).__module__}.{type(error).__qualname__}: {error}")
        return printed.getvalue().replace(self._address, ADDRESS)

    def has(self, command: str) -> bool:
        """Return whether the program is installed: not every machine has curl."""
        return shutil.which(command.split()[0], path=self._environ["PATH"]) is not None

    def console(self, command: str) -> str:
        """Return what the command prints on both streams; for a server, its banner."""
        command = command.replace(ADDRESS, self._address)
        printed = self._serve(command) if command.startswith("pnnx-serve serve ") else self._run(command)
        return printed.replace(self._address, ADDRESS)

    def _run(self, command: str) -> str:
        # Readers type commands into a shell.
        done = subprocess.run(
            f"exec 2>&1; {command}",
            shell=True,
            env=self._environ,
            stdout=subprocess.PIPE,
            text=True,
            timeout=2 * PATIENCE_S,
        )
        return done.stdout

    def _serve(self, command: str) -> str:
        server = subprocess.Popen(
            [*command.split(), "--port", "0"], env=self._environ, stdout=subprocess.PIPE, text=True
        )
        self._exits.enter_context(server)
        self._exits.callback(server.kill)
        banner = ""
        while not re.search(r"^  \d+ threads? ", banner, re.M):
            line = server.stdout.readline()  # type: ignore[union-attr]
            assert line, f"the server ended after: {banner}"
            banner += line
        self._address = re.findall(r"console +http://(\S+)/", banner)[0]
        return banner


def differences(text: str, reader: Reader, *languages: str) -> Iterator[str]:
    """Run the blocks of a page in these languages, and yield a message for each output that differs."""
    found = blocks(text)
    for block, following in zip(found, [*found[1:], None], strict=True):
        if block.language == "python" and "python" in languages:
            is_shown = following is not None and following.language == "text" and not following.follows.strip()
            yield from _difference(block.line, following.text if following and is_shown else "", reader.python(block))
        if block.language == "console" and "console" in languages:
            for shown in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
                command, _, output = shown.partition("\n")
                if reader.has(command):
                    yield from _difference(block.line, output, reader.console(command))


def _difference(line: int, shown: str, printed: str) -> Iterator[str]:
    if not fits(shown, printed):
        yield f"line {line} shows\n{shown}\nbut it is\n{printed}"


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block with the output that the page shows."""
    for shown in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        command, _, output = shown.partition("\n")
        yield command, output
