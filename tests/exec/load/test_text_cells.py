"""CSV of other programs: what is separated by another sign than a comma."""

from pathlib import Path

import pytest

import omnigraph as og


@pytest.mark.parametrize(
    "text",
    ["name;age\nAda;1\n", "name;age\nAda;1,5\n", "name|age\nAda|1\n", "name\tage\nAda\t1\n"],
)
def test_another_separator_is_told(tmp_path: Path, text: str) -> None:
    graph = og.init(tmp_path / "g.omni", schema="node Person { name: String @key, age: I32? }")
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(og.OmnigraphError) as refused:
        graph.load(tmp_path / "p.csv", "merge", type="Person")
    sign = repr(text[4])
    assert f"the cells are separated by {sign}; separate them by commas" in str(refused.value)
    graph.close()
