"""A plot of a soak as SVG: one small chart a measure, over the rounds of the run.

python -m tests.soak_plot soak.jsonl soak.svg
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP = 560, 70, 110, 24
MEASURES = ("bytes", "files", "tree", "files __locks", "branches", "commits", "p50", "p95")
_STYLE = (
    "text{font:11px sans-serif;fill:#555}polyline{fill:none;stroke:#2b6cb0;stroke-width:1.5}"
    "line{stroke:#ccc}"
)


def plot(rounds: Sequence[Mapping[str, float]]) -> str:
    """The chart of every measure, one below the other."""
    charts = [_chart(name, [each.get(name, 0) for each in rounds]) for name in MEASURES]
    step = HEIGHT + TOP
    body = "".join(
        f'<g transform="translate(0 {number * step + TOP})">{chart}</g>'
        for number, chart in enumerate(charts)
    )
    size = f'viewBox="0 0 {LEFT + WIDTH + 10} {len(charts) * step + 10}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>{body}</svg>\n'


def _chart(name: str, values: Sequence[float]) -> str:
    top = max(values, default=0) or 1
    step = WIDTH / max(1, len(values) - 1)
    points = " ".join(
        f"{LEFT + number * step:.1f},{HEIGHT - value / top * HEIGHT:.1f}"
        for number, value in enumerate(values)
    )
    return (
        f'<text x="0" y="{HEIGHT / 2:.0f}">{name}</text>'
        f'<text x="{LEFT - 4}" y="10" text-anchor="end">{top:,.0f}</text>'
        f'<text x="{LEFT - 4}" y="{HEIGHT}" text-anchor="end">0</text>'
        f'<line x1="{LEFT}" y1="{HEIGHT}" x2="{LEFT + WIDTH}" y2="{HEIGHT}"/>'
        f'<polyline points="{points}"/>'
    )


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    rounds = [json.loads(line) for line in source.read_text().splitlines()]
    target.write_text(plot(rounds))


if __name__ == "__main__":
    main()
