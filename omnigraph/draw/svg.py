"""SVG pictures: escaped elements, a sheet of colours for light and dark, and notebook display.

Invariant: every text and attribute is escaped, whatever it holds. A picture names classes and no
colours, so a page styles it with the sheet that a stand-alone file carries inside.
"""

import re
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_COLOURS = 10
_CAMEL = frozenset({"viewBox", "refX", "refY", "markerWidth", "markerHeight"})


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture. `body` is SVG inside a box of a width and a height, which begins at `origin`."""

    title: str
    width: float
    height: float
    body: str
    origin: tuple[float, float] = (0.0, 0.0)

    def inline(self, **attributes: str) -> str:
        """The picture as a part of a page, which brings the sheet."""
        return self._root("", attributes)

    def to_svg(self) -> str:
        """The picture as a file of its own."""
        return self._root(element("style", sheet()), {"xmlns": "http://www.w3.org/2000/svg"})

    def save(self, path: str) -> None:
        """Write the picture to a file."""
        Path(path).write_text(self.to_svg(), encoding="utf-8")

    def __str__(self) -> str:
        return self.to_svg()

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def _root(self, style: str, attributes: dict[str, str]) -> str:
        left, top = map(number, self.origin)
        width, height = number(self.width), number(self.height)
        return element(
            "svg",
            style + element("title", text(self.title)) + self.body,
            **attributes,
            class_="picture",
            role="group" if "<a " in self.body else "img",  # what is inside can be reached
            aria_label=self.title,
            viewBox=f"{left} {top} {width} {height}",
            width=width,
            height=height,
        )


def sheet() -> str:
    """The style sheet of pictures."""
    return files(__package__).joinpath("draw.css").read_text(encoding="utf-8")


def text(value: str) -> str:
    """A text as XML holds it; signs that XML cannot hold are replaced."""
    return escape(_UNWRITABLE.sub("\ufffd", value))


def number(value: float) -> str:
    """A length without needless digits."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def element(name: str, content: str = "", /, **attributes: str | float | None) -> str:
    """An element around content that is SVG already. `class_` is class, `a_b` is a-b; an attribute
    that is None is left out."""
    written = "".join(
        f' {_attribute(key)}="{text(value if isinstance(value, str) else number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def _attribute(key: str) -> str:
    return key if key in _CAMEL else key.rstrip("_").replace("_", "-")


def shortened(value: str, chars: int) -> str:
    """A text of at most so many characters, on one line."""
    line = " ".join(value.split())
    return line if len(line) <= chars else f"{line[: chars - 1]}…"


def colour_of(type_id: int) -> str:
    """The class that colours a type. It follows from the type's identity, so a graph keeps its
    colours when types are renamed, added or removed."""
    return f"t{type_id % _COLOURS}"
