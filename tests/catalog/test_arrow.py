"""The columns of each type."""

import lance
import pyarrow as pa

from omnigraph.catalog.accept import accept
from omnigraph.catalog.arrow import PROPERTY_ID
from omnigraph.types import Scalar
from tests.catalog.evolution import evolve


def test_a_node_table_has_id_and_then_properties_by_id() -> None:
    schema = accept("node A { b: I32 a: String? }").nodes["A"].schema

    assert schema.names == ["id", "a", "b"]
    assert schema.field("id").metadata == {b"lance-schema:unenforced-primary-key": b"true"}
    assert [schema.field(name).nullable for name in schema.names] == [False, True, False]


def test_an_edge_table_has_both_ends_after_its_id() -> None:
    schema = accept("node A {} edge E: A -> A { w: F64? }").edges["E"].schema

    assert schema.names == ["id", "src", "dst", "w"]
    assert [schema.field(name).type for name in ("id", "src", "dst")] == [pa.utf8()] * 3
    assert not any(schema.field(name).nullable for name in ("id", "src", "dst"))


def test_every_type_has_its_column() -> None:
    schema = (
        accept("""node A {
            s: String e: enum(a, b) b: Bool i: I32 l: I64 u: U32 m: U64 f: F32 d: F64
            day: Date at: DateTime v: Vector(3) n: [I64] t: [DateTime]?
        }""")
        .nodes["A"]
        .schema
    )

    assert {name: schema.field(name).type for name in schema.names if name != "id"} == {
        "s": pa.utf8(),
        "e": pa.utf8(),
        "b": pa.bool_(),
        "i": pa.int32(),
        "l": pa.int64(),
        "u": pa.uint32(),
        "m": pa.uint64(),
        "f": pa.float32(),
        "d": pa.float64(),
        "day": pa.date32(),
        "at": pa.timestamp("ms", "UTC"),
        "v": pa.list_(pa.float32(), 3),
        "n": pa.list_(pa.field("item", pa.int64(), nullable=False)),
        "t": pa.list_(pa.field("item", pa.timestamp("ms", "UTC"), nullable=False)),
    }
    assert len(Scalar) == 12, "a new scalar needs a column here"


def test_a_blob_is_the_field_that_lance_makes() -> None:
    field = accept("node A { file: Blob? }").nodes["A"].schema.field("file")

    # lance.blob_field: extension lance.blob.v2, no serialized data, over this storage.
    assert field.type == pa.struct(
        [
            ("data", pa.large_binary()),
            ("uri", pa.utf8()),
            ("position", pa.uint64()),
            ("size", pa.uint64()),
        ]
    )
    assert field.metadata[b"ARROW:extension:name"] == b"lance.blob.v2"
    assert field.metadata[b"ARROW:extension:metadata"] == b""
    assert field.nullable


def test_arrow_reads_the_blob_field_as_the_type_that_lance_registers() -> None:
    schema = accept("node A { file: Blob }").nodes["A"].schema
    received = pa.ipc.read_schema(pa.py_buffer(schema.serialize()))

    assert received.field("file").type == lance.blob_field("file").type
    assert received.field("file").metadata == {PROPERTY_ID.encode(): b"1"}


def test_a_renamed_property_keeps_its_place_and_its_id() -> None:
    old = accept("node A { a: I32? b: I32? }")
    new = evolve(old, 'node A { z: I32? @rename_from("a") b: I32? }')
    schema = new.nodes["A"].schema

    assert schema.names == ["id", "z", "b"]
    assert schema.field("z").metadata == {PROPERTY_ID.encode(): b"1"}
