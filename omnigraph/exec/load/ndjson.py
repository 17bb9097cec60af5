"""Graph NDJSON, one record at a time: the reference reader of the load format.

Invariant: a record becomes one row, or at least one fault. This reader defines the format;
`json_columns` reads most lines faster, and only where that gives the same rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from omnigraph.catalog.ids import entity_id, other_order
from omnigraph.catalog.model import Catalog, EdgeType, NodeType, Type
from omnigraph.catalog.near_names import did_you_mean, family_hint
from omnigraph.catalog.plain_values import date_hint
from omnigraph.errors import BadRequest, Violation
from omnigraph.exec.values.default_cells import default_values
from omnigraph.exec.values.derived_ids import derived_ids
from omnigraph.exec.values.from_input import Unfit, column, json_type_name, no_external, stored
from omnigraph.exec.values.mint import ulids
from omnigraph.exec.values.named_ids import end_id, respelled
from omnigraph.exec.values.scalars import ReadExternal, writable
from omnigraph.language.moments import cut_count
from omnigraph.types import Scalar, TableKey

TYPE_OF_ROWS = "name the type of its rows with type= or edge=, at a terminal --node or --edge"
"""Advice for rows that do not say their type themselves."""

ONE_A_LINE = "write one record a line, without brackets around them or commas between them"

Owner = Type
_MEMBERS = frozenset({"type", "edge", "from", "to", "data"})
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Typed rows of one type. `given` is false where the id was minted here; `rounded` counts
    values that were cut to the millisecond, by property. `absent` marks, by property, rows of a
    patch that do not give it; a property that every row gives is not in it."""

    owner: Owner
    table: pa.Table
    lines: pa.Array  # int64: the line of each row, counted in its part of the input
    given: pa.Array
    rounded: dict[str, int] = field(default_factory=dict)
    absent: dict[str, pa.Array] = field(default_factory=dict)


class BadRecord(Exception):
    """A record that cannot become a row, with its violation."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.text)
        self.violation = violation


def bad(
    rule: str,
    text: str,
    *,
    owner: str = "",
    prop: str | None = None,
    id: str | None = None,
    value: Any = None,
) -> BadRecord:
    """The exception for a violation of one record."""
    shown = None if value is None else _shown(value)
    return BadRecord(Violation(rule, owner, prop, id, shown, text))


def _shown(value: Any) -> str:
    try:
        return str(value)[:_SHOWN_CHARS]
    except ValueError:  # Python refuses to write thousands of digits
        return "a number of thousands of digits"


@dataclass(slots=True)
class RefusedRecords:
    """Refused records of one type as far as they could be read, and the rows of each column whose
    value could not."""

    owner: Owner
    lines: list[int] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    values: dict[str, list[Any]] = field(default_factory=dict)
    unread: dict[str, set[int]] = field(default_factory=dict)

    def take(
        self, line: int, entity: str | None, values: Mapping[str, Any], unread: set[str]
    ) -> None:
        """Keep the values of one record, and its id if that could be read."""
        self.ids.append(entity)
        for name in unread:
            self.unread.setdefault(name, set()).add(len(self.lines))
        for prop in self.owner.properties:
            self.values.setdefault(prop.name, []).append(values.get(prop.name))
        self.lines.append(line)

    def table(self) -> pa.Table:
        """The columns of the type, null where a value could not be read. The ends of an edge are
        checked with each record."""
        columns = {"id": pa.array(self.ids, pa.utf8())}
        if isinstance(self.owner, EdgeType):
            columns |= dict.fromkeys(("src", "dst"), pa.repeat(pa.scalar(""), len(self.lines)))
        for prop in self.owner.properties:
            columns[prop.name] = column(self.values[prop.name], prop.type)
        return pa.table(columns)


@dataclass(slots=True)
class _Pending:
    """Accepted records of one type, as lists of values."""

    owner: Owner
    ids: list[str | None] = field(default_factory=list)
    ends: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    values: dict[str, list[Any]] = field(default_factory=dict)
    lines: list[int] = field(default_factory=list)
    absent: dict[str, list[bool]] = field(default_factory=dict)


class Records:
    """Checks records and collects them into typed rows. `permissive` reads the older format;
    `patch` notes which properties a record leaves out."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        permissive: bool = False,
        patch: bool = False,
        read: ReadExternal = no_external,
    ) -> None:
        self.patch = patch
        self._catalog = catalog
        self._external = read
        self._permissive = permissive
        self._pending: dict[TableKey, _Pending] = {}
        self.refused: dict[TableKey, RefusedRecords] = {}
        self._default_values: dict[TableKey, dict[str, Any]] = {}
        self._near_names: dict[tuple[str, tuple[str, ...]], str] = {}
        # Spellings of an id and the canonical id, by node type, when permissive.
        self._spelled: dict[str, dict[str, str]] = {}

    def take(self, record: Any, line: int) -> Iterator[Violation]:
        """Collect one record of the graph format; yields its violations."""
        try:
            owner, ends, data = self._parts(record)
        except BadRecord as wrong:
            yield wrong.violation
            return
        yield from self._keep(owner, ends, data, line)

    def take_row(self, owner: Owner, row: Any, line: int) -> Iterator[Violation]:
        """Collect one flat record of a known type; an edge has `from` and `to` beside the rest."""
        if not isinstance(row, Mapping):
            text = f"a record must be an object, not {_no_object(row)}"
            yield bad("json", text, owner=owner.name).violation
            return
        data = dict(row)
        ends: dict[str, Any] = {}
        missing: list[str] = []
        if isinstance(owner, EdgeType):
            for word, other in (("from", "src"), ("to", "dst")):
                if word not in data and other not in data:
                    missing.append(word)
                ends[word] = data.pop(word) if word in data else data.pop(other, None)
        for fault in self._keep(owner, ends, data, line):
            text = f"{fault.text}; {end_columns([str(fault.property)], ())}"
            yield replace(fault, text=text) if fault.property in missing else fault

    def rows(self) -> Iterator[TypedRows]:
        """The collected rows, one table a type."""
        for pending in self._pending.values():
            if pending.lines:
                yield self._rows(pending)

    # Reading a record

    def _parts(self, record: Any) -> tuple[Owner, dict[str, Any], Mapping[str, Any]]:
        if not isinstance(record, Mapping):
            raise bad("json", f"a line must hold an object, not {_no_object(record)}")
        unknown = [name for name in record if name not in _MEMBERS]
        if unknown and not self._permissive:
            allowed = "type or edge, from, to and data"
            raise bad(
                "member", f"unknown member '{unknown[0]}' (expected: {allowed}){_flat(record)}"
            )
        if ("type" in record) == ("edge" in record):
            text = "a line needs either `type` or `edge`, and not both"
            raise bad("member", f"{text}{_flat(record)}")
        owner = self._owner(record)
        ends = {word: record[word] for word in ("from", "to") if word in record}
        if ends and isinstance(owner, NodeType):
            text = f"`{next(iter(ends))}` belongs to edges, and {owner.name} is a node"
            raise bad("member", text, owner=owner.name)
        data = record.get("data", {})
        if not isinstance(data, Mapping):
            text = f"`data` must be an object, not {json_type_name(data)}"
            raise bad("type", text, owner=owner.name)
        return owner, ends, data

    def _owner(self, record: Mapping[str, Any]) -> Owner:
        word = "type" if "type" in record else "edge"
        name = record[word]
        if not isinstance(name, str):
            raise bad("type", f"`{word}` must be a string, not {json_type_name(name)}")
        node, edge = self._catalog.node, self._catalog.edge
        owner: Owner | None = node(name) if word == "type" else edge(name)
        if owner is None:
            kind = "node" if word == "type" else "edge"
            text = f"unknown {kind} type '{name}'"
            known = (*(self._catalog.nodes if word == "type" else self._catalog.edges),)
            family = family_hint(name, self._catalog) if word == "edge" else ""
            if hint := family or self._near(name, known):
                text = f"{text}: {hint}"
            raise bad("unknown_type", text, owner=name, value=name)
        return owner

    def _near(self, name: str, known: tuple[str, ...]) -> str:
        """A hint with the known name that is nearest; worked out once for many records."""
        if (name, known) not in self._near_names:
            self._near_names[name, known] = did_you_mean(name, known, listed=False)
        return self._near_names[name, known]

    def _keep(
        self, owner: Owner, ends: Mapping[str, Any], data: Mapping[str, Any], line: int
    ) -> Iterator[Violation]:
        faults: list[Violation] = []
        given = self._values(owner, data, faults)
        values = {**self._defaults(owner), **given}
        end_ids: list[str] = []
        if isinstance(owner, EdgeType):
            for word, node_name in (("from", owner.source), ("to", owner.target)):
                try:
                    end_ids.append(self._end(owner, word, node_name, ends.get(word)))
                except BadRecord as wrong:
                    faults.append(wrong.violation)
        entity: str | None = None
        if not faults:
            try:
                keyed = {**values, **dict(zip(("src", "dst"), end_ids, strict=False))}
                entity = self._id(owner, keyed, data.get("id"), "id" in data)
            except BadRecord as wrong:
                faults.append(wrong.violation)
        if faults:
            unread = {fault.property for fault in faults if fault.property}
            ends_read = zip(("src", "dst"), end_ids, strict=True) if len(end_ids) == 2 else ()
            readable = {**values, **dict(ends_read)}
            readable = {name: value for name, value in readable.items() if name not in unread}
            entity = self._readable_id(owner, readable, data.get("id"))
            refused = self.refused.setdefault(owner.table, RefusedRecords(owner))
            refused.take(line, entity, values, unread)
            yield from (replace(each, id=each.id or entity) for each in faults)
            return
        pending = self._pending.setdefault(owner.table, _Pending(owner))
        pending.ids.append(entity)
        pending.lines.append(line)
        for kept, end in zip(pending.ends, end_ids, strict=False):
            kept.append(end)
        for prop in owner.properties:
            pending.values.setdefault(prop.name, []).append(values.get(prop.name))
            if self.patch:
                pending.absent.setdefault(prop.name, []).append(prop.name not in given)

    def _defaults(self, owner: Owner) -> Mapping[str, Any]:
        if owner.table not in self._default_values:
            self._default_values[owner.table] = default_values(owner)
        return self._default_values[owner.table]

    def _values(
        self, owner: Owner, data: Mapping[str, Any], faults: list[Violation]
    ) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in data.items():
            if name == "id":
                continue
            prop = owner.property(name)
            if prop is None:
                if not self._permissive:
                    known = tuple(prop.name for prop in owner.properties)
                    near = self._near(name, known)
                    text = f"unknown property '{name}' of {owner.name}{near and f': {near}'}"
                    faults.append(bad("property", text, owner=owner.name, prop=name).violation)
                continue
            try:
                values[name] = stored(value, prop.type, self._external)
            except Unfit as unfit:
                if self._permissive and unfit.rule == "type" and not isinstance(value, list):
                    continue
                hint = date_hint(value, prop.type.scalar)
                text = f"{owner.name}.{name} {unfit.text}{hint and f'; {hint}'}"
                wrong = bad(unfit.rule, text, owner=owner.name, prop=name, value=value)
                faults.append(wrong.violation)
        return values

    def _end(self, owner: EdgeType, word: str, node_name: str, value: Any) -> str:
        node = self._catalog.nodes[node_name]
        named = end_id(node, value)
        if isinstance(named, str):
            if not writable(named):
                raise bad("text", f"`{word}` holds half of a surrogate pair", owner=owner.name)
            return named
        if value is None:
            text = f"{owner.name} needs `{word}`: an edge is non-nullable at both ends"
            raise bad("required", text, owner=owner.name, prop=word)
        text = f"`{word}` must be a string{key_form(node)}, not {json_type_name(value)}"
        raise bad("type", text, owner=owner.name, prop=word, value=value)

    def _id(
        self, owner: Owner, values: Mapping[str, Any], given: Any, is_given: bool
    ) -> str | None:
        if is_given and not (isinstance(given, str) and writable(given)):
            if not self._permissive:
                text = f"`data.id` must be a string, not {json_type_name(given)}"
                raise bad("type", text, owner=owner.name, prop="id", value=given)
            given = None if given is None else str(given)
            is_given = given is not None
        derived = self._derived(owner, values)
        if derived is None:
            return given if is_given else None
        if is_given and given != derived:
            if self._permissive and self._spells(owner, given, derived):
                self._spelled.setdefault(owner.name, {})[given] = derived
                return derived
            text = f"`data.id` '{given}' is not the id '{derived}' that the key of {owner.name} has"
            text = f"{text}{other_order(given, derived)}"
            raise bad("key_id", text, owner=owner.name, prop="id", id=derived, value=given)
        return derived

    def _derived(self, owner: Owner, values: Mapping[str, Any]) -> str | None:
        if not owner.key:
            return None
        for name in owner.key:
            if values.get(name) is None:
                text = f"{owner.name}.{name} is non-nullable: a @key property cannot contain null"
                raise bad("required", text, owner=owner.name, prop=name)
        return entity_id(owner, values)

    def _readable_id(self, owner: Owner, values: Mapping[str, Any], given: Any) -> str | None:
        """The id of a refused record, if the values that could be read say it."""
        try:
            return self._derived(owner, values) or (given if isinstance(given, str) else None)
        except (BadRecord, BadRequest):
            return None

    def _spells(self, owner: Owner, given: str, derived: str) -> bool:
        """Whether an id is another spelling of the key: `042` for 42."""
        if not isinstance(owner, NodeType) or len(owner.key) != 1:
            return False
        prop = owner.property(owner.key[0])
        return prop is not None and respelled(given, prop.type) == derived

    # Columns

    def _rows(self, pending: _Pending) -> TypedRows:
        owner = pending.owner
        minted = ulids(sum(entity is None for entity in pending.ids)).to_pylist()
        fresh = iter(minted)
        ids = [entity if entity is not None else next(fresh) for entity in pending.ids]
        columns: dict[str, pa.Array] = {"id": pa.array(ids, pa.utf8())}
        if isinstance(owner, EdgeType):
            for name, node, kept in zip(
                ("src", "dst"), (owner.source, owner.target), pending.ends, strict=True
            ):
                spelled = self._spelled.get(node, {})
                columns[name] = pa.array([spelled.get(end, end) for end in kept], pa.utf8())
        for prop in owner.properties:
            columns[prop.name] = column(pending.values[prop.name], prop.type)
        if isinstance(owner, EdgeType) and owner.key and self._spelled:
            columns["id"] = derived_ids(owner, columns)  # of the ends as they are now
        moments = [prop.name for prop in owner.properties if prop.type.scalar is Scalar.DATETIME]
        cut = {name: cut_count(pending.values[name]) for name in moments}
        schema = owner.schema
        return TypedRows(
            owner,
            pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema),
            pa.array(pending.lines, pa.int64()),
            pa.array([entity is not None for entity in pending.ids], pa.bool_()),
            {name: count for name, count in cut.items() if count},
            {name: pa.array(marks) for name, marks in pending.absent.items() if any(marks)},
        )


def key_form(node: NodeType) -> str:
    """What an end may be beside an id, inside a sentence; nothing where only texts name a node."""
    types = [prop.type for name in node.key if (prop := node.property(name)) is not None]
    if len(types) == 1:
        return "" if types[0].scalar is Scalar.STRING else f" or a key ({types[0]})"
    return f" or a key ([{', '.join(map(str, types))}])" if types else ""


def end_columns(missing: Sequence[str], unknown: Sequence[str]) -> str:
    """How columns of other names fill the missing ends of an edge: the `unknown` ones, if there are
    enough, in their order."""
    theirs = unknown if len(unknown) >= len(missing) else [f"THEIR_{w.upper()}" for w in missing]
    named = dict(zip(theirs, missing, strict=False))
    options = " ".join(f"--column {name}={word}" for name, word in named.items())
    return f"say which column it is, like columns={named}, at a terminal {options}"


def _no_object(record: Any) -> str:
    """The kind of a record that is no object, and what to do with an array of them."""
    kind = json_type_name(record)
    return f"{kind}: {ONE_A_LINE}" if isinstance(record, list) else kind


def _flat(record: Mapping[str, Any]) -> str:
    """What to do with a line that looks like a row of one type."""
    return "" if "data" in record else f"; if it is a row of one type, {TYPE_OF_ROWS}"
