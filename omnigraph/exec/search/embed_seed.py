"""Embedding of an NDJSON file before it is loaded: adds vectors to its node records.

Invariant: a line that is no node record of a selected type is copied byte for byte. The output file
appears atomically, and the order of lines never changes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from omnigraph.costs import COSTS
from omnigraph.errors import BadRequest
from omnigraph.exec.search.embed import Provider, Purpose
from omnigraph.output_file import file_path, whole_file
from omnigraph.types import VECTOR_DIMENSION_MAX


class Fill(StrEnum):
    """The mode of an embedding run: the records that get a vector."""

    FILL_MISSING = "fill_missing"
    RESELECTED = "reembed_selected"
    ALL = "reembed_all"
    CLEAN = "clean"


@dataclass(frozen=True, slots=True)
class VectorRecipe:
    """The property of a type that holds its vector, and the fields whose text is embedded."""

    target: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Spec:
    """The dimension, and a recipe a type."""

    dimension: int
    types: Mapping[str, VectorRecipe]


@dataclass(frozen=True, slots=True)
class Choice:
    """One `--select`: a field's value, of one type or of any."""

    type_name: str | None
    field: str
    value: str

    def takes(self, type_name: str, data: Mapping[str, Any]) -> bool:
        if self.type_name is not None and self.type_name != type_name:
            return False
        return self.field in data and _text(data[self.field]) == self.value


@dataclass(frozen=True, slots=True)
class SeedOrder:
    """A request to embed a file."""

    source: Path
    target: Path
    spec: Spec
    fill: Fill
    types: frozenset[str] = frozenset()
    choices: tuple[Choice, ...] = ()


@dataclass(slots=True)
class SeedResult:
    """Counts of an embedding run."""

    records: int = 0
    selected: int = 0
    embedded: int = 0
    cleaned: int = 0


@dataclass(slots=True)
class _Line:
    raw: bytes
    document: dict[str, Any] | None = None
    text: str | None = None
    target: str = ""


@dataclass(slots=True)
class _SeedRun:
    order: SeedOrder
    provider: Provider | None
    done: SeedResult = field(default_factory=SeedResult)

    def write(self) -> SeedResult:
        with self.order.source.open("rb") as source, whole_file(self.order.target) as out:
            for group in _grouped(self._line(raw, n) for n, raw in enumerate(source, 1)):
                self._embed(group)
                out.writelines(_bytes(line) for line in group)
        return self.done

    def _line(self, raw: bytes, number: int) -> _Line:
        if not raw.strip():
            return _Line(raw)
        try:
            document = orjson.loads(raw)
        except orjson.JSONDecodeError as cause:
            raise BadRequest(
                f"{self.order.source}:{number}: malformed JSON ({cause})", "correct the line"
            ) from None
        if not isinstance(document, dict) or not isinstance(document.get("data"), dict):
            return _Line(raw)
        self.done.records += 1
        name = document.get("type")
        recipe = self.order.spec.types.get(name) if isinstance(name, str) else None
        if recipe is None or not self._selected(str(name), document["data"]):
            return _Line(raw)
        self.done.selected += 1
        return self._chosen(raw, document, recipe)

    def _selected(self, name: str, data: Mapping[str, Any]) -> bool:
        if self.order.types and name not in self.order.types:
            return False
        choices = self.order.choices
        return not choices or any(choice.takes(name, data) for choice in choices)

    def _chosen(self, raw: bytes, document: dict[str, Any], recipe: VectorRecipe) -> _Line:
        data = document["data"]
        if self.order.fill is Fill.CLEAN:
            if recipe.target not in data:
                return _Line(raw)
            del data[recipe.target]
            self.done.cleaned += 1
            return _Line(raw, document)
        if self.order.fill is Fill.FILL_MISSING and data.get(recipe.target):
            return _Line(raw)
        return _Line(raw, document, _embedded_text(document["type"], data, recipe), recipe.target)

    def _embed(self, group: Sequence[_Line]) -> None:
        lines = [line for line in group if line.text is not None]
        if not lines:
            return
        assert self.provider is not None, "only a cleaning goes without a provider"
        texts = [line.text or "" for line in lines]
        vectors = self.provider.embed(texts, self.order.spec.dimension, Purpose.DOCUMENT)
        for line, vector in zip(lines, vectors, strict=True):
            assert line.document is not None
            line.document["data"][line.target] = vector
        self.done.embedded += len(lines)


def embed_seed(order: SeedOrder, provider: Provider | None) -> SeedResult:
    """Copy the file with vectors added."""
    if not order.source.is_file():
        raise BadRequest(f"input file '{order.source}' not found", "give a file that is there")
    if order.source.resolve() == file_path(order.target).resolve():
        raise BadRequest("input and output are the same file", "give another --output")
    return _SeedRun(order, provider).write()


def _grouped(lines: Iterable[_Line]) -> Iterator[list[_Line]]:
    """Batches of lines, each with as many texts as one provider call takes."""
    group: list[_Line] = []
    texts = 0
    for line in lines:
        group.append(line)
        texts += line.text is not None
        if texts == COSTS.embed_texts_per_call or len(group) == 64 * COSTS.embed_texts_per_call:
            yield group
            group, texts = [], 0
    if group:
        yield group


def _bytes(line: _Line) -> bytes:
    if line.document is None:
        return line.raw
    return orjson.dumps(line.document) + b"\n"


def _embedded_text(type_name: str, data: Mapping[str, Any], recipe: VectorRecipe) -> str:
    """The text to embed: the type, then a line for each non-empty field."""
    texts = ((name, _text(data.get(name))) for name in recipe.fields)
    return "\n".join([f"type: {type_name}", *(f"{n}: {text}" for n, text in texts if text)])


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    return orjson.dumps(value).decode()


def spec_of(document: Any, where: str) -> Spec:
    """The spec in a JSON or YAML document."""
    try:
        dimension = document["dimension"]
        if type(dimension) is not int or not 1 <= dimension <= VECTOR_DIMENSION_MAX:
            raise BadRequest(f"{where}: dimension is {dimension!r}", "give a whole number above 0")
        types = {str(n): _recipe(one, f"{where}: {n}") for n, one in document["types"].items()}
    except (KeyError, TypeError, AttributeError):
        raise BadRequest(
            f"{where} is no embedding spec",
            'write {"dimension": N, "types": {"Doc": {"target": "vector", "fields": ["title"]}}}',
        ) from None
    return Spec(dimension, types)


def _recipe(one: Any, where: str) -> VectorRecipe:
    target, fields = one["target"], one["fields"]
    if not isinstance(target, str) or not isinstance(fields, list) or not fields:
        raise BadRequest(f"{where} needs a target and a list of fields", "name both")
    return VectorRecipe(target, tuple(map(str, fields)))
