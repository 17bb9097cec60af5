"""A catalog survives being stored, and a damaged document is not taken for one."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings

from omnigraph.catalog.accept import accept
from omnigraph.catalog.codec import decode, encode
from omnigraph.errors import StorageFailed, UnsupportedVersion
from omnigraph.language.schema.ast import Schema
from tests.catalog.evolution import evolve
from tests.language.schema_text import format_schema
from tests.language.schema_trees import accepted_schemas

TEXT = """
interface Named { name: String @key  alias: String? @unique @index }
node Person @owner(team, n=1, f=1.0, b=true) implements Named {
  age: I32?  v: Vector(3)? @embed(name, model="m")  role: enum(b, a)  tags: [String]?
  @range(age, 0..) @check(alias, "x") @unique(age, role)
}
edge Knows: Person -> Person @card(0..3) { since: Date? @unique(src, dst) }
"""


def stored(document: object) -> Any:
    return json.loads(json.dumps(document))


@settings(max_examples=75, derandomize=True, deadline=None)
@given(schema=accepted_schemas())
def test_every_accepted_catalog_is_the_same_after_storage(schema: Schema) -> None:
    catalog = accept(format_schema(schema))
    after = decode(stored(encode(catalog)))

    assert after == catalog
    assert encode(after) == encode(catalog)
    assert list(after.nodes) == list(catalog.nodes)


def test_values_keep_their_types() -> None:
    (owner,) = decode(stored(encode(accept(TEXT)))).nodes["Person"].annotations

    assert [type(value) for _, value in owner.kwargs] == [int, float, bool]


def test_the_counters_survive() -> None:
    dropped = evolve(accept(TEXT), "node Person { age: I32? }")
    after = decode(stored(encode(dropped)))

    assert after.next_type_id == 4
    assert after == dropped


def test_the_fingerprint_ignores_order_and_sees_meaning() -> None:
    base = accept("node A { a: I32? b: enum(x, y) @unique(a, b) }\ninterface I {}")

    assert accept("interface I {} node A { b: enum(y, x) a: I32? @unique(b, a) }").fingerprint == (
        base.fingerprint
    )
    for other in (
        "node A { a: I32? b: enum(x, z) @unique(a, b) }\ninterface I {}",
        "node A { a: I32? b: enum(x, y) }\ninterface I {}",
        "node A { a: I32? b: enum(x, y) @x @unique(a, b) }\ninterface I {}",
    ):
        assert accept(other).fingerprint != base.fingerprint


def test_a_later_format_asks_for_an_upgrade() -> None:
    with pytest.raises(UnsupportedVersion, match="upgrade omnigraph"):
        decode({**encode(accept(TEXT)), "format": 3})


@pytest.mark.parametrize("document", [None, [], "x", {}, {"format": "1"}, {"format": True}])
def test_what_is_no_document_is_refused(document: object) -> None:
    with pytest.raises(StorageFailed):
        decode(document)


def test_a_counter_that_would_give_an_id_twice_is_refused() -> None:
    document = stored(encode(accept(TEXT)))
    document["next_type_id"] = 1
    with pytest.raises(StorageFailed, match="type ids"):
        decode(document)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, item in items:
        found += places(item, (*path, key))
    return found


def test_no_single_damage_goes_unnoticed() -> None:
    document = stored(encode(accept(TEXT)))
    for path in places(document):
        for damage in ("drop", None, 0, "odd", [], {}, True, -1, 1.5, {"odd": 1}):
            if path[0] == "format" and damage != "drop":
                continue
            broken = copy.deepcopy(document)
            owner = broken
            for key in path[:-1]:
                owner = owner[key]
            if damage == "drop":
                del owner[path[-1]]
            elif owner[path[-1]] == damage and type(owner[path[-1]]) is type(damage):
                continue
            else:
                owner[path[-1]] = damage
            if path[-1] == "next_property_id" and damage not in ("drop", None):
                continue  # a greater counter is as good
            with pytest.raises(StorageFailed):
                decode(broken)
