"""UI5: the colours of pages and pictures stand out from what they lie on, in both themes (WCAG).

axe-core looks at the text of pages; pictures, the editor and marks are out of its sight.
"""

import re
from importlib.resources import files

import pytest

TEXT, MARK = 4.5, 3.0
THEMES = ("light", "dark")
PAPERS = ("paper", "back", "field")


def _colours(theme: str) -> dict[str, str]:
    """The variables of a theme, of both sheets."""
    ui = files("omnigraph.server.ui").joinpath("static/ui.css").read_text("utf-8")
    draw = files("omnigraph.draw").joinpath("draw.css").read_text("utf-8")
    colours: dict[str, str] = {}
    for sheet in (draw, ui):
        chosen = {None: r":root \{([^}]*)\}", "dark": r':root\[data-theme="dark"\] \{([^}]*)\}'}
        for name, pattern in chosen.items():
            if name in (None, theme):
                (block,) = re.findall(pattern, sheet)
                colours |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        media = re.search(r"@media \(prefers-color-scheme: dark\) \{(.*?)\n\}", sheet, re.S)
        (by_choice,) = re.findall(chosen["dark"], sheet)
        assert media is not None
        said = [dict(re.findall(r"--([\w-]+): ([^;]+)", each)) for each in (media[1], by_choice)]
        assert said[0] == said[1], "dark by choice is dark by preference"
    return colours


def _light(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2, 1 to 21."""
    high, low = sorted((_light(one), _light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES)
def test_UI5_texts_and_marks_can_be_told_from_their_background(theme: str) -> None:
    colours = _colours(theme)
    pairs = [(n, p, TEXT) for n in ("ink", "dim", "added", "removed", "changed") for p in PAPERS]
    pairs += [("accent", each, TEXT) for each in ("paper", "back")]
    pairs += [("accent-ink", "accent", TEXT), ("ink", "chip", TEXT)]
    pairs += [("ink", each, TEXT) for each in ("good-back", "bad-back")]
    pairs += [(f"t{n}", "field", TEXT) for n in (0, 1, 2, 3, 5)]  # words of the editor
    pairs += [(f"t{n}", "paper", MARK) for n in range(10)]
    pairs += [("edge", "paper", MARK)]
    poor = {
        (one, other): round(contrast(colours[one], colours[other]), 2)
        for one, other, least in pairs
        if contrast(colours[one], colours[other]) < least
    }
    assert not poor


def test_the_ratio_is_that_of_the_standard() -> None:
    assert round(contrast("#000000", "#ffffff"), 1) == 21.0
    assert round(contrast("#777777", "#ffffff"), 2) == 4.48
