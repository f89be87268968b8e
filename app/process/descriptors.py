"""Limits of the process that the system sets low for everybody's programs."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

# More would only make lists longer that some systems walk through.
MAX_FILES: Final = 1 << 20


def raise_file_limit() -> int:
    """Allow as many open files and connections as an administrator permits; how many those are now.

    Processes started afterwards inherit it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
