"""Bar chart: names and numbers, one bar a row.

Invariant: bars start at zero, and what is no number has no bar.
"""

import math
from collections.abc import Sequence

from omnigraph.draw.svg import Picture, element, shortened, text

_ROW, _NAME, _BAR, _NUMBER = 22.0, 170.0, 420.0, 90.0


def bar_chart(title: str, rows: Sequence[tuple[str, object]]) -> Picture:
    """A bar for each row, as long as its number."""
    numbers = [_number(value) for _, value in rows]
    low, high = min([0.0, *numbers]), max([0.0, *numbers])
    scale = _BAR / ((high - low) or 1.0)
    zero = _NAME - low * scale
    body = []
    for n, ((name, value), length) in enumerate(zip(rows, numbers, strict=True)):
        y = 8 + n * _ROW
        body.append(element("text", text(shortened(name, 24)), x=4, y=y + 14))
        width = abs(length) * scale
        left = zero if length >= 0 else zero - width
        body.append(element("rect", x=left, y=y, width=width, height=_ROW - 6, rx=2, class_="t0"))
        said = text(shortened(str(value), 14))
        body.append(
            element("text", said, x=zero + max(length, 0) * scale + 6, y=y + 14, class_="dim")
        )
    height = 16 + len(rows) * _ROW
    return Picture(
        title, _NAME + _BAR + _NUMBER, height, element("g", "".join(body), class_="scene")
    )


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0.0
    return float(value)
