"""Lines and branches are counted from the first import on, by code that slipcover writes into every module.

It would take that code out again where it has counted, in the middle of a test: it looks through the variables of every
frame for functions, and so holds what they hold, and it takes longer than to count on.
"""

from __future__ import annotations

import sys

_plugin = sys.modules.get("slipcover.pytest_plugin")
if _plugin is not None and _plugin._slipcover_instance is not None:
    _plugin._slipcover_instance.d_miss_threshold = 2**31 - 1
