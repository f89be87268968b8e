"""The style sheet: two schemes, one set of family colours."""

from __future__ import annotations

from typing import Final

from app.render.palette import COLOURS, TEXT

_LIGHT: Final = "--page:#ffffff;--body:#ffffff;--edge:#94a3b8;--rim:#cbd5e1;--ink:#0f172a;--soft:#475569;--heat:#ef4444"
_DARK: Final = "--page:#0b1220;--body:#162032;--edge:#64748b;--rim:#334155;--ink:#e2e8f0;--soft:#a3b1c6;--heat:#b91c1c"

_RULES: Final = """
.pnnx-graph{LIGHT;font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif}
@media (prefers-color-scheme:dark){.pnnx-graph{DARK}}
.pnnx-graph-page{fill:var(--page)}
.pnnx-graph-body{fill:var(--body);stroke:var(--rim)}
.pnnx-graph-heat{fill:var(--heat)}
.pnnx-graph-line{fill:none;stroke:var(--edge);stroke-width:1.4}
.pnnx-graph-arrow{fill:var(--edge)}
.pnnx-graph text{font-size:11px;fill:var(--ink);white-space:pre}
.pnnx-graph .pnnx-graph-head{font-size:12px;font-weight:600;fill:TEXT}
.pnnx-graph .pnnx-graph-note{fill:TEXT}
.pnnx-graph .pnnx-graph-name,.pnnx-graph .pnnx-graph-shape{fill:var(--soft)}
.pnnx-graph .pnnx-graph-heat~text.pnnx-graph-name,.pnnx-graph .pnnx-graph-heat~text.pnnx-graph-shape{fill:var(--ink)}
.pnnx-graph .pnnx-graph-title{font-size:18px;font-weight:600}
.pnnx-graph .pnnx-graph-summary{font-size:12px;fill:var(--soft)}
.pnnx-graph .pnnx-graph-middle{text-anchor:middle}
.pnnx-graph .pnnx-graph-end{text-anchor:end}
.pnnx-graph-edge:hover .pnnx-graph-line{stroke:var(--ink);stroke-width:2.4}
.pnnx-graph-edge:hover .pnnx-graph-arrow{fill:var(--ink)}
.pnnx-graph-operator:hover .pnnx-graph-body{stroke:var(--ink)}
"""


def style_sheet() -> str:
    """The rules, without characters that markup would have to escape."""
    rules = _RULES.replace("LIGHT", _LIGHT).replace("DARK", _DARK).replace("TEXT", TEXT)
    colours = "".join(f".pnnx-graph-{family} .pnnx-graph-fill{{fill:{colour}}}\n" for family, colour in COLOURS.items())
    return rules + colours
