"""What an accepted schema means. The golden files hold the rest of the rules."""

import re
import subprocess
import sys
import timeit

import pytest

from omnigraph.catalog.accept import accept, admit
from omnigraph.catalog.model import Cardinality, Check, Embed, Range
from omnigraph.errors import ParseError
from omnigraph.types import Scalar, ValueType


def test_an_interface_gives_a_node_what_the_node_does_not_declare() -> None:
    catalog = accept("""
        interface Named { name: String @key  alias: String? @unique  note: String? @index }
        node A implements Named { note: String? }
    """)
    node = catalog.nodes["A"]

    assert [(p.name, p.injected_from) for p in node.properties] == [
        ("note", None),
        ("name", "Named"),
        ("alias", "Named"),
    ]
    assert node.key == ("name",)
    assert node.uniques == (("alias",),)
    assert node.indexes == (), "the node's own annotations are the ones that count"


def test_two_interfaces_may_differ_in_words_for_people() -> None:
    catalog = accept("""
        interface I { x: I32? @description("one") }
        interface J { x: I32? @description("other") }
        node A implements I, J {}
    """)

    assert catalog.nodes["A"].properties[0].injected_from == "I"


def test_a_bound_is_kept_in_the_propertys_kind_of_number() -> None:
    ranges = (
        accept("""
        node A { i: I32 f: F64 @range(i, 1.0..2.5) @range(f, 1..) @range(f, ..9007199254740993) }
    """)
        .nodes["A"]
        .ranges
    )

    assert [(type(r.low), type(r.high)) for r in ranges] == [
        (int, float),
        (float, type(None)),
        (type(None), int),  # no float is equal to this bound
    ]
    assert ranges[0] == Range("i", 1, 2.5)


def test_an_upper_bound_alone_limits_from_above() -> None:
    assert accept("node A { i: I32 @range(i, ..5) }").nodes["A"].ranges == (Range("i", None, 5),)


def test_everything_a_query_needs_is_in_the_catalog() -> None:
    catalog = accept("""
        node Doc { title: String  v: Vector(3)? @embed(title, model="m")  s: enum(b, a)
                   @check(title, "^x") }
        edge Cites: Doc -> Doc @card(0..5) { w: F32? }
    """)
    doc = catalog.nodes["Doc"]

    vector, state = doc.property("v"), doc.property("s")
    assert vector is not None
    assert vector.embed == Embed("title", "m")
    assert state is not None
    assert state.type == ValueType(Scalar.STRING, enum_values=("a", "b"))
    assert doc.checks == (Check("title", "^x"),)
    assert catalog.edges["Cites"].cardinality == Cardinality(0, 5)
    assert catalog.edge("cites") is catalog.edges["Cites"]


def test_hints_of_a_new_graph_are_inert_and_said_to_be() -> None:
    admission = admit('node A @rename_from("B") {\n  x: I32? @rename_from("y")\n}')

    assert [(d.code, d.entity, d.line) for d in admission.diagnostics] == [
        ("inert_initialization_rename_hint", "node:A", 1),
        ("inert_initialization_rename_hint", "node:A.x", 2),
    ]


def test_an_error_says_what_to_do_next() -> None:
    with pytest.raises(ParseError) as caught:
        accept("node A {}\nedge E: A -> A { @unique(from, to) }")

    assert str(caught.value).endswith("help: the ends of an edge are called src and dst here")


def test_accepting_a_schema_does_not_load_arrow() -> None:
    program = (
        "import sys\n"
        "from omnigraph.catalog.accept import accept\n"
        "accept('node A { a: String @key }')\n"
        "assert 'pyarrow' not in sys.modules, 'pyarrow was imported'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_schema_of_fifty_types_is_accepted_at_once() -> None:
    text = "\n".join(
        f"node N{i} {{ k: String @key a: I32? @index b: enum(x, y)? c: [String]? d: Date? "
        f'e: Vector(8)? @description("d") f: F64? @range(f, 0..1) @unique(a, b) }}'
        for i in range(50)
    )

    # About 20 ms on an idle machine; the margin is for busy ones.
    assert min(timeit.repeat(lambda: accept(text), number=1, repeat=3)) < 0.5


@pytest.mark.parametrize(
    ("written", "meant"),
    [("@uniqe", "@unique"), ("@idx", "@index"), ("@keys", "@key"), ("@descripton", "@description")],
)
def test_an_annotation_that_is_nearly_a_known_one_is_taken_for_a_slip(
    written: str, meant: str
) -> None:
    with pytest.raises(ParseError, match=f"did you mean {meant}"):
        accept(f"node A {{ k: String {written} }}")


def test_other_unknown_annotations_are_kept_as_metadata() -> None:
    catalog = accept('node A @owner("data") { k: String @pii @label("Key", lang="en") }')
    assert [note.name for note in catalog.nodes["A"].annotations] == ["owner"]
    assert [note.name for note in catalog.nodes["A"].properties[0].annotations] == ["pii", "label"]


def test_a_hot_property_is_kept_in_the_catalog() -> None:
    text = "interface N { n: String? @hot }  node A implements N { k: String @key  a: I32 @hot }"
    node = accept(text).nodes["A"]
    assert [prop.name for prop in node.properties if prop.is_hot] == ["a", "n"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("node A { b: Blob? @hot }", "A.b of type Blob?.*only single values"),
        ("node A { v: Vector(3)? @hot }", "of type Vector.*only single values"),
        ("node A { l: [I32]? @hot }", "only single values"),
        ("node A { }  edge E: A -> A { w: I32? @hot }", "not supported on edges"),
        ("node A @hot { k: String @key }", "not supported on node types"),
        ("node A { k: String @hot @hot }", "appears twice"),
        ("node A { k: String @hot(1) }", "takes no value"),
    ],
)
def test_hot_is_refused_where_no_column_file_can_be(text: str, said: str) -> None:
    with pytest.raises(ParseError) as refused:
        accept(text)
    assert re.search(said, str(refused.value), re.DOTALL)


def test_an_edge_that_names_a_renamed_node_type_is_told_the_new_name() -> None:
    with pytest.raises(ParseError) as refused:
        accept('node Trial @rename_from("Test") { k: String @key }  edge Of: Test -> Trial')
    assert refused.value.hint == "Test is called Trial now: write that"


def test_annotations_of_other_languages_are_told_to_have_no_effect() -> None:
    text = "node A @pk { x: I32 @default(3)  y: I32 @required  z: I32 @key  w: I32? @team(red) }"
    told = {each.entity: each.text for each in admit(text).diagnostics}
    assert told == {
        "node:A": "@pk has no effect; a key is written @key: isbn: String @key",
        "node:A.x": "@default has no effect; a default is written with =: copies: I32 = 3",
        "node:A.y": (
            "@required has no effect; a property has a value unless its type ends with ?: "
            "title: String"
        ),
    }
