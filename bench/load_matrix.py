"""Matrix of loads: one column shape after the other, from every input format, beside bare Lance.

    python bench/load.py --matrix                      100,000 rows a shape, every format
    python bench/load.py --matrix --rows 20000 --shapes Vector --formats parquet csv

A cell is one load into an empty graph, in a process that has loaded before: rows and megabytes of
Arrow a second. `lance` writes the same Arrow table by itself, so a cell over it is the price of
reading the format, of the rules and of the commit. CPU seconds decide on a machine with other work.
"""

import base64
import io
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq

import omnigraph as og

RESULTS = Path(__file__).parent / "results" / "load_matrix.json"
DICE = np.random.default_rng(5)
Made = Callable[[int], pa.Array]


def _numbers(kind: pa.DataType, high: int) -> Made:
    return lambda rows: pa.array(DICE.integers(0, high, rows)).cast(kind)


def _vectors(width: int) -> Made:
    def made(rows: int) -> pa.Array:
        numbers = DICE.standard_normal(rows * width, np.float32)
        return pa.FixedSizeListArray.from_arrays(pa.array(numbers), width)

    return made


def _texts(chars: int) -> Made:
    words = [f"word{n}" for n in range(1_000)]

    def made(rows: int) -> pa.Array:
        picked = DICE.integers(0, 1_000, (rows, max(1, chars // 8)))
        return pa.array([" ".join(words[n] for n in row) for row in picked.tolist()])

    return made


def _lists(item: Made) -> Made:
    def made(rows: int) -> pa.Array:
        ends = np.arange(0, 5 * rows + 1, 5, dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(ends), item(5 * rows))

    return made


def _blobs(rows: int) -> pa.Array:
    return pa.array([DICE.bytes(200) for _ in range(rows)])


def _enums(rows: int) -> pa.Array:
    return pa.array(np.array(["red", "green", "blue"])[DICE.integers(0, 3, rows)].tolist())


def _nulls(made: Made) -> Made:
    def sparse(rows: int) -> pa.Array:
        return pa.array(
            made(rows).to_pylist(), made(1).type, mask=DICE.random(rows) < 0.9, from_pandas=False
        )

    return sparse


_DATES = _numbers(pa.int32(), 20_000)
SCALARS: dict[str, tuple[str, Made]] = {
    "String": ("String", _texts(20)),
    "Bool": ("Bool", lambda rows: pa.array(DICE.integers(0, 2, rows) == 1)),
    "I32": ("I32", _numbers(pa.int32(), 1 << 30)),
    "I64": ("I64", _numbers(pa.int64(), 1 << 60)),
    "U32": ("U32", _numbers(pa.uint32(), 1 << 30)),
    "U64": ("U64", _numbers(pa.uint64(), 1 << 60)),
    "F32": ("F32", lambda rows: pa.array(DICE.standard_normal(rows, np.float32))),
    "F64": ("F64", lambda rows: pa.array(DICE.standard_normal(rows))),
    "Date": ("Date", lambda rows: _DATES(rows).cast(pa.date32())),
    "DateTime": (
        "DateTime",
        lambda rows: _numbers(pa.int64(), 1 << 40)(rows).cast(pa.timestamp("ms", "UTC")),
    ),
    "enum": ("enum(red, green, blue)", _enums),
    "Blob": ("Blob", _blobs),
}
SHAPES: dict[str, dict[str, tuple[str, Made]]] = {
    **{name: {"v": column} for name, column in SCALARS.items()},
    "Vector(64)": {"v": ("Vector(64)", _vectors(64))},
    "Vector(1536)": {"v": ("Vector(1536)", _vectors(1536))},
    "text 2 KB": {"v": ("String", _texts(2_000))},
    "[String]": {"v": ("[String]", _lists(_texts(8)))},
    "[F64]": {"v": ("[F64]", _lists(SCALARS["F64"][1]))},
    "[Date]": {"v": ("[Date]", _lists(SCALARS["Date"][1]))},
    "30 columns": {
        f"c{n}": column
        for n, column in enumerate(
            [c for name, c in SCALARS.items() if name not in ("Blob", "enum")] * 3
        )
    },
    "mostly null": {
        f"c{n}": (kind, _nulls(made))
        for n, (kind, made) in enumerate(
            [SCALARS[name] for name in ("String", "I64", "F64", "Bool", "I32")] * 2
        )
    },
}
HEAVY = {"Vector(1536)": 20, "text 2 KB": 10, "30 columns": 2}
"""Shapes with fewer rows, by how much."""


def made(shape: str, rows: int) -> tuple[str, pa.Table]:
    """The schema of a shape, and its rows as Arrow."""
    columns = SHAPES[shape]
    properties = "  ".join(f"{name}: {kind}?" for name, (kind, _) in columns.items())
    table = pa.table(
        {
            "name": pa.array([f"n{n}" for n in range(rows)]),
            **{name: column(rows) for name, (_, column) in columns.items()},
        }
    )
    return f"node Thing {{ name: String @key  {properties} }}", table


# Formats


def _json_rows(table: pa.Table) -> list[dict[str, Any]]:
    plain = table.schema
    for index, column in enumerate(plain):
        if pa.types.is_timestamp(column.type):
            ms = table[column.name].cast(pa.timestamp("ms"))
            table = table.set_column(index, column.name, ms)
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        for name, value in row.items():
            if isinstance(value, bytes):
                row[name] = "base64:" + base64.b64encode(value).decode()
    return rows


def _dumped(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_UTC_Z | orjson.OPT_NAIVE_UTC)


def as_parquet(table: pa.Table, folder: Path) -> dict[str, Any]:
    pq.write_table(table, folder / "in.parquet")
    return {"source": folder / "in.parquet", "type": "Thing"}


def as_csv(table: pa.Table, folder: Path) -> dict[str, Any]:
    rows = _json_rows(table)
    columns: dict[str, pa.Array] = {}
    for field in table.schema:
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            cells = [row[field.name] for row in rows]
            texts = [c if c is None or isinstance(c, str) else _dumped(c).decode() for c in cells]
            columns[field.name] = pa.array(texts, pa.utf8())
        else:
            columns[field.name] = table[field.name]
    pv.write_csv(pa.table(columns), folder / "in.csv")
    return {"source": folder / "in.csv", "type": "Thing"}


def as_flat(table: pa.Table, folder: Path) -> dict[str, Any]:
    text = b"".join(_dumped(row) + b"\n" for row in _json_rows(table))
    (folder / "flat.jsonl").write_bytes(text)
    return {"source": folder / "flat.jsonl", "type": "Thing"}


def as_graph(table: pa.Table, folder: Path) -> dict[str, Any]:
    lines = ({"type": "Thing", "data": row} for row in _json_rows(table))
    (folder / "in.jsonl").write_bytes(b"".join(_dumped(line) + b"\n" for line in lines))
    return {"source": folder / "in.jsonl"}


def as_arrow(table: pa.Table, folder: Path) -> dict[str, Any]:
    return {"source": table, "type": "Thing"}


def as_pandas(table: pa.Table, folder: Path) -> dict[str, Any]:
    return {"source": table.to_pandas(), "type": "Thing"}


def as_polars(table: pa.Table, folder: Path) -> dict[str, Any]:
    import polars  # noqa: PLC0415

    return {"source": polars.from_arrow(table), "type": "Thing"}


def as_spark(table: pa.Table, folder: Path) -> dict[str, Any]:
    from omnigraph.pipeline.session import session  # noqa: PLC0415

    pq.write_table(table, folder / "spark.parquet")
    spark = session("bulk")
    return {"source": spark.read.parquet(str(folder / "spark.parquet")), "type": "Thing"}


FORMATS = {
    "arrow": as_arrow,
    "parquet": as_parquet,
    "csv": as_csv,
    "flat": as_flat,
    "graph": as_graph,
    "pandas": as_pandas,
    "polars": as_polars,
    "spark": as_spark,
}


# Measuring


def _taken(work: Callable[[], Any]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def cell(shape: str, form: str, schema: str, table: pa.Table) -> dict[str, Any]:
    """One load."""
    with tempfile.TemporaryDirectory() as own:
        folder = Path(own)
        if form == "lance":
            plain = table.combine_chunks()
            wall, cpu = _taken(lambda: lance.write_dataset(plain, str(folder / "bare.lance")))
        else:
            options = FORMATS[form](table, folder)
            graph = og.init(folder / "graph.omni", schema)
            source = options.pop("source")
            options["engine"] = "spark" if form == "spark" else "local"
            wall, cpu = _taken(lambda: graph.load(source, "append", **options))
            counted = graph.snapshot().tables
            assert [pin.row_count for pin in counted.values()] == [table.num_rows]
    return {
        "rows": table.num_rows,
        "wall_s": round(wall, 3),
        "cpu_s": round(cpu, 3),
        "rows_a_second": int(table.num_rows / wall),
        "mb_a_second": round(table.nbytes / wall / 1e6, 1),
    }


def run(rows: int, shapes: list[str], formats: list[str], *, save: bool) -> None:
    """Every cell, printed as a table: rows a second, and CPU over that of bare Lance."""
    chosen = [s for s in SHAPES if not shapes or any(s.startswith(each) for each in shapes)]
    forms = [f for f in FORMATS if f in formats]
    _warm()
    print("| shape | rows | lance rows/s, MB/s | " + " | ".join(forms) + " |")
    print("|---|---|---|" + "---|" * len(forms))
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for shape in chosen:
        schema, table = made(shape, max(1, rows // HEAVY.get(shape, 1)))
        cells = {form: cell(shape, form, schema, table) for form in ("lance", *forms)}
        found.setdefault(str(rows), {})[shape] = cells
        print(_line(shape, cells), flush=True)
        if save:
            RESULTS.write_text(json.dumps(found, indent=1) + "\n")


def _line(shape: str, cells: dict[str, dict[str, Any]]) -> str:
    bare = cells["lance"]
    out = io.StringIO()
    out.write(f"| {shape} | {bare['rows']:,} ")
    out.write(f"| {bare['rows_a_second']:,}, {bare['mb_a_second']} ")
    for form, each in cells.items():
        if form != "lance":
            ratio = each["cpu_s"] / max(bare["cpu_s"], 0.001)
            out.write(f"| {each['rows_a_second']:,}, {each['mb_a_second']} ({ratio:.1f}×) ")
    return out.getvalue() + "|"


def _warm() -> None:
    """Load once, small and large: modules that a load needs are then there."""
    schema, table = made("I64", 30_000)
    for form in ("arrow", "flat", "csv"):
        cell("I64", form, schema, table)
