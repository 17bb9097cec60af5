"""Edges with an interface at an end: an edge type for each node type that implements it."""

import pytest

from omnigraph.catalog.accept import accept
from omnigraph.catalog.codec import decode, encode
from omnigraph.catalog.identity import numbered_above
from omnigraph.catalog.model import Catalog, EdgeType
from omnigraph.catalog.schema_diff import plan_migration, steps_between
from omnigraph.catalog.schema_merge import merge_schemas
from omnigraph.catalog.schema_text import schema_text
from omnigraph.errors import ParseError
from tests.catalog.evolution import evolve

TEXT = """interface Named { name: String @key }
node Doc { slug: String @key }
node Person implements Named {}
node Company implements Named {}
edge Mentions: Doc -> Named @key(src, dst) { since: I32? }
edge Links: Named -> Named
"""
BIRD = "node Bird implements Named {}\n"
FISH = "node Fish implements Named {}\n"
SINCE = "{ since: I32? }"


def ids(catalog: Catalog) -> dict[str, int]:
    return {name: edge.id for name, edge in catalog.edges.items()}


def ends(edge: EdgeType) -> tuple[str, str]:
    return edge.source, edge.target


def test_a_declaration_is_an_edge_type_for_each_pair_of_ends() -> None:
    catalog = accept(TEXT)

    assert {name: ends(edge) for name, edge in catalog.edges.items()} == {
        "Mentions_Person": ("Doc", "Person"),
        "Mentions_Company": ("Doc", "Company"),
        "Links_Person_Person": ("Person", "Person"),
        "Links_Person_Company": ("Person", "Company"),
        "Links_Company_Person": ("Company", "Person"),
        "Links_Company_Company": ("Company", "Company"),
    }
    assert [edge.name for edge in catalog.members("mentions")] == [
        "Mentions_Person",
        "Mentions_Company",
    ]
    assert [edge.name for edge in catalog.edges_declared] == ["Mentions", "Links"]
    assert decode(encode(catalog)) == catalog
    assert not plan_migration(catalog, schema_text(catalog, {})).steps


def test_a_schema_without_interfaces_at_ends_has_the_document_it_always_had() -> None:
    document = encode(accept("interface I {} node A implements I {} edge E: A -> A"))

    assert document["format"] == 1
    assert "family" not in document["edges"][0]


def test_members_follow_their_ends_and_their_family_through_renames() -> None:
    old = accept(TEXT)
    text = TEXT.replace("Person", 'Human @rename_from("Person")')
    text = text.replace("edge Mentions", "edge Refers").replace(
        f"dst) {SINCE}", 'dst) @rename_from("Mentions") { year: I32? @rename_from("since") }'
    )
    new = evolve(old, text + BIRD)

    renamed = {"Mentions_Person": "Refers_Human", "Mentions_Company": "Refers_Company"}
    assert {name: ids(new)[now] for name, now in renamed.items()} == {
        name: ids(old)[name] for name in renamed
    }
    assert ids(new)["Links_Human_Company"] == ids(old)["Links_Person_Company"]
    assert ids(new)["Refers_Bird"] not in ids(old).values()
    assert new.edges["Refers_Human"].properties[0].id == 1
    assert [str(s) for s in plan_migration(old, text).steps if "Refers_Human" in str(s)] == [
        "rename edge type 'Mentions_Person' -> 'Refers_Human'",
        "rename property 'Refers_Human.since' -> 'Refers_Human.year' on edge 'Refers_Human'",
    ]


def test_an_end_is_opened_to_an_interface_and_closed_again_without_a_new_edge_type() -> None:
    closed = accept(TEXT.replace("Doc -> Named", "Doc -> Person"))
    opened = evolve(closed, TEXT)
    assert ids(opened)["Mentions_Person"] == ids(closed)["Mentions"]
    assert "rename edge type 'Mentions' -> 'Mentions_Person'" in map(
        str, plan_migration(closed, TEXT).steps
    )

    back = TEXT.replace("Doc -> Named @key(src, dst)", "Doc -> Person @key(src, dst) @note")
    back = back.replace("@note", '@rename_from("Mentions_Person")')
    assert ids(evolve(opened, back))["Mentions"] == ids(closed)["Mentions"]


def test_another_interface_at_an_end_is_refused() -> None:
    both = TEXT.replace("implements Named", "implements Named, Other") + "interface Other {}\n"
    plan = plan_migration(accept(both), both.replace("Doc -> Named", "Doc -> Other"))

    assert not plan.supported
    assert "changing edge endpoints from Doc -> Named to Doc -> Other" in str(plan.lines())


def test_a_hint_must_name_what_was_there_and_is_free() -> None:
    old = accept(TEXT)
    for text in (
        TEXT.replace("dst)", 'dst) @rename_from("Quotes")').replace("Mentions", "Cites"),
        TEXT + 'edge Cites: Doc -> Named @rename_from("Mentions")',
    ):
        with pytest.raises(ParseError, match=r"@rename_from"):
            evolve(old, text)


@pytest.mark.parametrize(
    "more",
    ["edge MENTIONS_Person: Doc -> Doc", "edge Mentions_Person: Doc -> Named"],
)
def test_a_name_that_a_member_has_is_refused(more: str) -> None:
    with pytest.raises(ParseError, match="Mentions_Person"):
        accept(TEXT + more)


def test_a_backfill_of_a_family_is_for_all_its_edge_types() -> None:
    text = TEXT.replace(SINCE, "{ since: I32?  weight: F64 }")
    plan = plan_migration(accept(TEXT), text, backfill={"Mentions.weight": "1.0"})

    assert plan.supported
    assert sum("filled with 1.0" in line for line in plan.lines()) == 2


# ---- merges


def sides(base: Catalog, ours: str, theirs: str) -> tuple[Catalog, Catalog]:
    """What two branches made of a schema: numbers that one gives away, the other does not."""
    one = evolve(base, ours)
    return one, evolve(numbered_above(base, [one]), theirs)


def whole(catalog: Catalog) -> Catalog:
    """A merged schema, checked: it is what its own text says."""
    assert decode(encode(catalog)) == catalog
    assert not plan_migration(catalog, schema_text(catalog, {})).steps
    return catalog


def test_types_that_two_sides_add_get_the_edges_between_them() -> None:
    base = accept(TEXT)
    ours, theirs = sides(base, TEXT + BIRD, TEXT + FISH)
    merge = merge_schemas(base, ours, theirs)

    assert not merge.conflicts
    merged = whole(merge.catalog)
    added = {"Mentions_Fish", "Links_Bird_Fish", "Links_Fish_Bird", "Links_Fish_Fish"}
    assert added <= merged.edges.keys()
    assert len(set(ids(merged).values())) == len(merged.edges) == 4 + 16
    assert ids(merged)["Mentions_Bird"] == ids(ours)["Mentions_Bird"]


def test_a_property_of_one_side_is_one_of_the_types_of_the_other() -> None:
    base = accept(TEXT)
    wider = evolve(base, TEXT.replace(SINCE, '{ year: I32? @rename_from("since")  at: Date? }'))
    more = evolve(base, TEXT + BIRD)
    for ours, theirs in ((wider, more), (more, wider)):
        merge = merge_schemas(base, ours, theirs)
        assert not merge.conflicts
        merged = whole(merge.catalog)
        names = {e.name: [p.name for p in e.properties] for e in merged.members("Mentions")}
        assert {tuple(sorted(each)) for each in names.values()} == {("at", "year")}
        bird, was = merged.edges["Mentions_Bird"], more.edges["Mentions_Bird"]
        assert bird.property("year").id == was.property("since").id  # type: ignore[union-attr]
        assert not [s for s in steps_between(more, merged) if "drop" in str(s)]


def test_a_key_of_one_side_and_a_type_of_the_other_are_a_conflict() -> None:
    base = accept(TEXT.replace(" @key(src, dst)", ""))
    keyed = evolve(base, TEXT)
    more = evolve(base, TEXT.replace(" @key(src, dst)", "") + BIRD)

    assert merge_schemas(base, more, keyed).conflicts


def test_an_edge_that_one_side_removes_stays_gone_where_the_other_adds_a_type() -> None:
    base = accept(TEXT)
    fewer = evolve(base, TEXT.replace("edge Links: Named -> Named\n", ""))
    more = evolve(base, TEXT + BIRD)
    for ours, theirs in ((fewer, more), (more, fewer)):
        merge = merge_schemas(base, ours, theirs)
        assert not merge.conflicts
        assert [e.name for e in whole(merge.catalog).edges_declared] == ["Mentions"]


def test_a_family_and_a_type_that_meet_in_a_merge() -> None:
    base = accept(TEXT.replace("edge Links: Named -> Named\n", ""))
    without = TEXT.replace("edge Links: Named -> Named\n", "")
    ours, theirs = sides(base, TEXT, without + BIRD)

    merge = merge_schemas(base, ours, theirs)
    assert not merge.conflicts
    assert {"Links_Bird_Bird", "Mentions_Bird"} <= whole(merge.catalog).edges.keys()


def test_an_edge_that_is_called_like_a_member_is_a_conflict_of_the_merge() -> None:
    base = accept(TEXT.replace("edge Links: Named -> Named\n", ""))
    without = TEXT.replace("edge Links: Named -> Named\n", "")
    plain = "edge Links_Bird_Bird: Doc -> Doc\n"
    for ours, theirs in (
        sides(base, TEXT, without + BIRD + plain),
        sides(base, without + BIRD + plain, TEXT),
    ):
        conflicts = merge_schemas(base, ours, theirs).conflicts
        assert [each.type_name for each in conflicts] == ["Links_Bird_Bird"]
