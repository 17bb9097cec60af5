"""Columns in and out, of files and over HTTP alike: CSV, Parquet, and what faults name."""

import datetime
import io
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from tests.remote.both import Maker, SharedServer

SCHEMA = """
node Work { no: String @key, title: String?, made: Date?, shown: Bool = true, tags: [String]?, photo: Blob? }
edge LentTo: Work -> Work { starts: Date?, fee: F64? }
node Empty { no: String @key }
"""  # noqa: E501
CSV = (
    "\ufeffNumber,title,made,shown,tags\r\n"
    '1,"Night Watch, The",1642-01-01,TRUE,"[""dutch""]"\r\n'
    '2,"two\nlines",,false,\r\n'
    "\r\n"
    '3,"",1904-02-03,,\r\n'
)


def test_csv_is_read_as_a_file_is(new: Maker, tmp_path: Path) -> None:
    graph = new(SCHEMA)
    (tmp_path / "a.csv").write_bytes(CSV.encode().replace(b",,\r\n", b",true,\r\n"))
    (tmp_path / "b.csv").write_text("Number,title,made,shown,tags\n4,last,,true,\n")
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    with pytest.raises(og.ConstraintViolated, match="no"):
        graph.load(paths, "merge", type="Work", columns={"Number": None})
    done = graph.load(paths, "merge", type="Work", columns={"Number": "no"})
    assert done.nodes == {"Work": 4}
    exported = io.BytesIO()
    graph.export(exported, "csv", types=["Work"])
    assert exported.getvalue().decode().splitlines() == [
        "id,no,title,made,shown,tags,photo",
        '1,1,"Night Watch, The",1642-01-01,true,"[""dutch""]",',
        '2,2,"two',
        'lines",,false,,',
        '3,3,"",1904-02-03,true,,',
        "4,4,last,,true,,",
    ]


@pytest.mark.parametrize("mode", ["append", "merge", "patch"])
def test_every_faulty_row_of_a_file_is_told_beside_a_ragged_one(
    new: Maker, tmp_path: Path, mode: str
) -> None:
    graph = new(SCHEMA)
    (tmp_path / "bad.csv").write_text(
        "no,Title,made,shown\n1,x,soon,true\n2,y\n3,z,2020-01-01,maybe\n4,w,,true\n"
    )
    with pytest.raises(og.ConstraintViolated) as refused:
        graph.load(tmp_path / "bad.csv", mode, type="Work", columns={"Title": "title"})  # type: ignore[arg-type]
    assert refused.value.total == 3
    assert sorted(each.line or 0 for each in refused.value.violations) == [2, 3, 4]


@pytest.mark.parametrize("mode", ["append", "merge", "patch"])
def test_a_fault_names_the_line_of_the_file(new: Maker, tmp_path: Path, mode: str) -> None:
    graph = new(SCHEMA)
    sound, bad = tmp_path / "a.csv", tmp_path / "b.csv"
    sound.write_text("no,title,made,shown\n9,x,,true\n")
    text = CSV.replace("\ufeffNumber", "no").replace(",tags", "").replace(',"[""dutch""]"', "")
    text = text.replace("false,", "false").replace("1904-02-03,,", "3/2/1904,yes")
    bad.write_text(text, newline="")
    with pytest.raises(og.ConstraintViolated) as refused:
        graph.load([sound, bad], mode, type="Work")  # type: ignore[arg-type]
    faults = {each.property: each for each in refused.value.violations}
    assert {(each.file, each.line) for each in faults.values()} == {(str(bad), 6)}
    assert faults["shown"].text == "Work.shown must be a boolean, not 'yes'; write true or false"
    assert f"{bad}:6" in str(refused.value)


def test_a_key_that_is_there_names_the_line_too(new: Maker, tmp_path: Path) -> None:
    graph = new(SCHEMA)
    (tmp_path / "e.csv").write_text("from,to\n1,2\n")
    (tmp_path / "w.tsv").write_text('no\ttitle\n1\t"a\nb"\n1\tc\n')
    with pytest.raises(og.ConstraintViolated) as refused:
        graph.load(tmp_path / "w.tsv", "append", type="Work")
    assert {each.line for each in refused.value.violations} <= {2, 4}
    with pytest.raises(og.ConstraintViolated) as dangling:
        graph.load(tmp_path / "e.csv", "append", edge="LentTo")
    assert (dangling.value.violations[0].file, dangling.value.violations[0].line) == (
        str(tmp_path / "e.csv"),
        2,
    )


def test_a_fault_of_parquet_and_of_lines_names_its_file(new: Maker, tmp_path: Path) -> None:
    graph = new(SCHEMA)
    moments = pa.array([1, 86_400_001], pa.timestamp("ms"))
    pq.write_table(pa.table({"no": ["1", "2"], "made": moments}), tmp_path / "w.parquet")
    with pytest.raises(og.ConstraintViolated, match=r"dt\.date.*w\.parquet:1") as refused:
        graph.load(tmp_path / "w.parquet", "merge", type="Work")
    assert refused.value.total == 2
    (tmp_path / "1.jsonl").write_text('{"type": "Work", "data": {"no": "1"}}\n')
    (tmp_path / "2.jsonl").write_text('{"type": "Work", "data": {"no": "2"}}\n{"type": "Wrk"}\n')
    with pytest.raises(og.ConstraintViolated, match=r"2\.jsonl:2"):
        graph.load([tmp_path / "1.jsonl", tmp_path / "2.jsonl"], "merge")


def test_an_export_of_columns_has_the_bytes_of_a_local_one(
    shared: SharedServer, tmp_path: Path
) -> None:
    local = og.init(tmp_path / "g.omni", schema=SCHEMA)
    rows = [{"no": f"{n:05}", "title": "é" * (n % 7), "photo": b"\x00x"} for n in range(9_000)]
    local.load(rows, "append", type="Work")
    local.load([{"from": "00001", "to": "00002", "starts": "2024-01-02"}], "append", edge="LentTo")
    local.schema.apply(SCHEMA.replace("fee: F64?", "fee: F64?, paid: Bool?"))
    served = shared.connect(tmp_path / "g.omni")
    for format in ("csv", "parquet"):
        results = []
        for name, graph in (("local", local), ("served", served)):
            folder = tmp_path / name / format
            results.append((graph.export(f"{folder}/", format), _files(folder)))  # type: ignore[arg-type]
        assert results[0] == results[1]
        assert results[0][0].nodes == {"Empty": 0, "Work": 9_000}
    at_start = local.commits.list()[-1].id
    assert served.export(tmp_path / "old", "csv", snapshot=at_start, types=["Work"]).nodes == {
        "Work": 0
    }
    with pytest.raises(og.BadRequest, match="rows of one type"):
        served.export(tmp_path / "two.csv", "csv")
    with pytest.raises(og.BadRequest, match="did you mean 'Work'"):
        served.export(tmp_path / "two.csv", "csv", types=["Wrk"])
    local.close()


def _files(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_csv_goes_by_http_alone(shared: SharedServer, tmp_path: Path) -> None:
    og.init(tmp_path / "g.omni", schema=SCHEMA).close()
    url = f"{shared.server.url}/graphs/{shared.add(tmp_path / 'g.omni')}"
    sent = {"Content-Type": "text/csv"}
    body = 'no,title,shown\n1,"a, b",FALSE\n2,,true\n'
    done = httpx.post(f"{url}/load?type=Work&mode=merge", content=body, headers=sent)
    assert (done.status_code, done.json()["total_entities"]) == (200, 2)
    asked = {"type_names": ["Work"]}
    export = httpx.post(f"{url}/export", json=asked, headers={"Accept": "text/csv"})
    assert export.headers["content-type"].startswith("text/csv")
    assert export.text.splitlines()[1:] == ['1,1,"a, b",,false,,', "2,2,,,true,,"]
    for wrong in ("no,title\n1,2,3\n", "", "no,title,shown\n1,x,maybe\n"):
        refused = httpx.post(f"{url}/load?type=Work", content=wrong, headers=sent)
        assert refused.status_code == 400, refused.text
    several = httpx.post(f"{url}/export", json={}, headers={"Accept": "text/csv"})
    assert (several.status_code, "one type" in several.text) == (400, True)


@pytest.mark.parametrize("format", ["jsonl", "parquet", "csv"])
@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_an_export_folder_loads_as_one_commit(
    new: Maker, tmp_path: Path, format: str, mode: str
) -> None:
    first, again = new(SCHEMA), new(SCHEMA)
    photo = {"no": "1", "title": "", "made": "1642-01-01", "tags": ["a,b"], "photo": "base64:AAEC"}
    first.load([photo, {"no": "2", "shown": False}], "append", type="Work")
    first.load([{"from": "1", "to": "2", "fee": 0.1}], "append", edge="LentTo")
    first.export(f"{tmp_path}/dump/", format)  # type: ignore[arg-type]
    done = again.load(tmp_path / "dump", mode)  # type: ignore[arg-type]
    assert (done.nodes, done.edges) == ({"Work": 2}, {"LentTo": 1})
    assert again.commits.list()[0].id == done.commit.id
    assert b"".join(again.export_lines()) == b"".join(first.export_lines())


def test_a_file_of_columns_is_named_after_its_type(new: Maker, tmp_path: Path) -> None:
    graph = new(SCHEMA)
    (tmp_path / "node-Work.csv").write_text("no,title\n1,x\n")
    (tmp_path / "more.jsonl").write_text('{"edge":"LentTo","from":"1","to":"1"}\n')
    done = graph.load([tmp_path / "node-Work.csv", tmp_path / "more.jsonl"], "append")
    assert (done.nodes, done.edges) == ({"Work": 1}, {"LentTo": 1})
    (tmp_path / "node-Work.csv").write_text("no,made\n1,1904-01-01\n")
    graph.load(tmp_path / "node-Work.csv", "patch")
    assert graph.entity("node", "Work", "1").properties["title"] == "x"
    (tmp_path / "node-Work.csv").write_text("no,made\n1,soon\n")
    with pytest.raises(og.ConstraintViolated, match=r"node-Work\.csv:2: Work\.made"):
        graph.load(tmp_path / "node-Work.csv", "merge")
    (tmp_path / "node-Wrok.csv").write_text("no\n1\n")
    with pytest.raises(og.BadRequest, match="did you mean 'Work'"):
        graph.load(tmp_path / "node-Wrok.csv", "merge")
    (tmp_path / "works.csv").write_text("no\n1\n")
    with pytest.raises(og.BadRequest, match="type= or edge="):
        graph.load(tmp_path / "works.csv", "merge")


def test_rows_of_a_table_are_rows_over_http_too(new: Maker) -> None:
    rows = [{"no": "1"}, {"no": "2", "made": "soon"}]
    for source in (rows, pa.Table.from_pylist([{"made": None, **row} for row in rows])):
        with pytest.raises(og.ConstraintViolated, match=r"row 2: Work\.made"):
            new(SCHEMA).load(source, "merge", type="Work")


def test_a_quote_left_open_and_cells_left_out_are_refused_over_http_too(
    new: Maker, tmp_path: Path
) -> None:
    graph = new(SCHEMA)
    (tmp_path / "w.csv").write_text('no,title\n1,"a\nb"\n2,"c\n3,d\n')
    with pytest.raises(og.BadRequest, match=r"the quote opened in line 4 of .*w\.csv is never"):
        graph.load(tmp_path / "w.csv", "merge", type="Work")
    (tmp_path / "w.csv").write_text('no,title\n1,"a\nb"\n2\n3,d,e\n')
    (tmp_path / "node-Work.csv").write_bytes((tmp_path / "w.csv").read_bytes())
    for file, named in (("w.csv", {"type": "Work"}), ("node-Work.csv", {})):
        with pytest.raises(og.ConstraintViolated) as refused:
            graph.load(tmp_path / file, "merge", **named)  # type: ignore[arg-type]
        assert [str(each).removeprefix(f"{tmp_path}/") for each in refused.value.violations] == [
            f"{file}:4: the row has 1 cell, not 2 as the header has",
            f"{file}:5: the row has 3 cells, not 2 as the header has",
        ]
    assert b"".join(graph.export_lines()) == b""


def test_a_body_of_csv_is_refused_as_a_file_is(shared: SharedServer, tmp_path: Path) -> None:
    og.init(tmp_path / "g.omni", schema=SCHEMA).close()
    url = f"{shared.server.url}/graphs/{shared.add(tmp_path / 'g.omni')}/load?type=Work&mode=merge"
    for body, said in (
        ('no,title\n1,a\n2,"b\n3,c\n', "the quote opened in line 3 of the body is never closed"),
        ("no,title\n1,a\n2\n3,c\n", "row 2: the row has 1 cell, not 2 as the header has"),
    ):
        refused = httpx.post(url, content=body, headers={"Content-Type": "text/csv"})
        assert (refused.status_code, said in refused.text) == (400, True), refused.text


def test_a_bad_value_among_objects_of_pandas_is_told_with_its_row(new: Maker) -> None:
    graph, day = new(SCHEMA), datetime.date(2024, 1, 2)
    frame = pd.DataFrame({"no": [str(n) for n in range(1_500)], "made": [day, None] * 750})
    frame["shown"] = [True, False, "maybe"] + [True] * 1_497
    frame.loc[1_400, "made"] = "not a date"
    with pytest.raises(og.ConstraintViolated) as refused:
        graph.load(frame, "merge", type="Work")
    assert {str(each) for each in refused.value.violations} == {
        "row 3: Work.shown must be a boolean, not a string",
        "row 1401: Work.made 'not a date' is not a date like 2024-01-31",
    }
    frame.loc[1_400, "made"], frame.loc[2, "shown"] = "2024-01-03", False
    assert graph.load(frame, "merge", type="Work").nodes == {"Work": 1_500}
    made = [graph.entity("node", "Work", no).properties["made"] for no in ("0", "1", "1400")]
    assert [str(each) for each in made] == ["2024-01-02", "None", "2024-01-03"]
    twice = pd.DataFrame([["a", "b"]], columns=["no", "no"])
    with pytest.raises(og.BadRequest, match="name each column once"):
        graph.load(twice, "merge", type="Work")
    odd = pd.DataFrame({"no": ["a"], "title": [object()]})
    with pytest.raises(og.BadRequest, match=r"no Arrow form: .* in column 'title'"):
        graph.load(odd, "merge", type="Work")


def test_records_of_numpy_and_pandas_mean_the_same_over_http(new: Maker) -> None:
    graph = new("node N { no: I64 @key  count: I32?  day: Date?  text: String? }")
    record = {"no": np.int64(1), "count": 2.0, "day": np.datetime64("2024-01-31"), "text": pd.NA}
    graph.load([record], "merge", type="N")
    graph.load([{"type": "N", "data": {**record, "no": 2.0}}], "merge")
    asked = "query q() { match { $n: N } return { $n.no, $n.count, $n.day, $n.text } }"
    assert [list(row.values()) for row in graph.query(asked).rows] == [
        [no, 2, "2024-01-31", None] for no in (1, 2)
    ]


@pytest.mark.parametrize(
    ("index", "columns"),
    [("title", None), ("Label", {"Label": "title"})],
    ids=["its own name", "renamed"],
)
def test_an_index_called_like_a_property_is_refused(
    new: Maker, index: str, columns: dict[str, str | None] | None
) -> None:
    graph = new(SCHEMA)
    frame = pd.DataFrame({"no": ["1"], index: ["x"]}).set_index(index)
    with pytest.raises(og.ConstraintViolated, match=r"Work.title has no column: .* is the index"):
        graph.load(frame, "append", type="Work", columns=columns)


@pytest.mark.parametrize("columns", [None, {"title": None}], ids=["unknown", "left out"])
def test_another_index_is_left_out(new: Maker, columns: dict[str, str | None] | None) -> None:
    graph = new(SCHEMA)
    name = "shelf" if columns is None else "title"
    frame = pd.DataFrame({"no": ["1"], name: ["x"]}).set_index(name)
    assert graph.load(frame, "append", type="Work", columns=columns).nodes == {"Work": 1}


def test_rows_whose_every_column_is_left_out_are_counted(new: Maker) -> None:
    graph = new("node Note { text: String? }")
    table = pa.table({"shelf": ["a", "b"]})
    assert graph.load(table, "append", type="Note", columns={"shelf": None}).nodes == {"Note": 2}


def test_a_key_of_a_record_that_is_no_text_is_told_the_same_over_http(new: Maker) -> None:
    graph = new("node N { no: I64 @key }")
    with pytest.raises(og.ConstraintViolated, match="row 2: a key of a record must be a string"):
        graph.load([{"no": 1}, {"no": 2, 3: 4}], "merge", type="N")
    rows = pa.table({"a": ["x"]})
    graph = new("node N { no: I64 @key }  edge To: N -> N")
    for columns in ({}, {"a": None}):
        with pytest.raises(og.ConstraintViolated, match="To needs columns for `from` and `to`"):
            graph.load(
                rows.select([]) if not columns else rows, "merge", edge="To", columns=columns
            )
