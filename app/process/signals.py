"""The signals that end a server."""

from __future__ import annotations

import signal


def ending() -> tuple[signal.Signals, ...]:
    """SIGTERM and SIGINT; and SIGHUP, that of a terminal that is closed, unless whoever started it has it ignored."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # nohup
    return (signal.SIGTERM, signal.SIGINT) if is_ignored else (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
