"""``python -m app``: the server with the settings of the environment.

The order matters: threads are settled before anything imports numpy.
"""

from __future__ import annotations

import sys

from app.settings import Settings, SettingsError
from app.threads import limit_threads, thread_budget


def main() -> int:
    """Serve; 2 for settings that do not work."""
    try:
        settings = Settings.from_env()
        limit_threads(thread_budget(settings.threads, settings.workers).threads)
        from app.server import serve  # imports numpy

        return serve(settings)
    except SettingsError as exc:
        print(f"pnnx-serve: {exc}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
