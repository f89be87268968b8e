"""``pnnx-serve completion``: scripts that complete verbs and flags."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from app.cli.verbs import VERBS
from app.settings import Settings


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Print the script of a shell."""
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell]
    sys.stdout.write(write({name: _flags(name) for name in VERBS}))
    return 0


def _flags(verb: str) -> list[str]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    VERBS[verb].add_to(parser)
    return sorted(flag for action in parser._actions for flag in action.option_strings if flag.startswith("--"))


def _bash(flags: Mapping[str, Sequence[str]]) -> str:
    cases = "\n".join(f"    {verb}) words='{' '.join(each)}' ;;" for verb, each in flags.items())
    return f"""_pnnx_serve() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} words
  case ${{COMP_WORDS[1]}} in
{cases}
    *) words='{" ".join(flags)}' ;;
  esac
  if [ "$COMP_CWORD" = 1 ]; then words='{" ".join(flags)} --help --version'; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _pnnx_serve pnnx-serve
"""


def _zsh(flags: Mapping[str, Sequence[str]]) -> str:
    cases = "\n".join(f"    {verb}) compadd -- {' '.join(each)} ;;" for verb, each in flags.items())
    return f"""#compdef pnnx-serve
if (( CURRENT == 2 )); then
  compadd -- {" ".join(flags)} --help --version
elif [[ $words[CURRENT] == -* ]]; then
  case $words[2] in
{cases}
  esac
else
  _files
fi
"""


def _fish(flags: Mapping[str, Sequence[str]]) -> str:
    lines = [
        f"complete -c pnnx-serve -n __fish_use_subcommand -f -a {verb} -d '{VERBS[verb].summary}'" for verb in flags
    ]
    lines += [
        f"complete -c pnnx-serve -n '__fish_seen_subcommand_from {verb}' -l {flag.removeprefix('--')}"
        for verb, each in flags.items()
        for flag in each
    ]
    return "\n".join([*lines, ""])
