"""Hints about the end of a walk that reaches several types: no binding drops rows unsaid."""

import pytest

from omnigraph.catalog.accept import accept
from omnigraph.errors import TypeCheckError
from omnigraph.plan.compile import compile_query

NODES = """
interface Named { name: String }
interface Rare { name: String }
node P implements Named, Rare { name: String @key }
node Q implements Named, Rare { name: String @key }
node R implements Named { name: String @key }
node S { name: String @key }
edge K: P -> P
edge L: P -> Q
edge M: P -> R
edge N: P -> S
"""
CASES = [
    ("k|l", "write $q: Rare for all of them; $q: P leaves out Q"),
    ("k|l|m", "write $q: Named for all of them; $q: P leaves out Q and R"),
    (
        "k|l|n",
        "declare an interface that P, Q and S implement and write $q: with its name, or join a "
        "query for each by union; $q: P leaves out Q and S",
    ),
]


@pytest.mark.parametrize(("edges", "hint"), CASES)
def test_the_hint_names_what_keeps_every_type_and_what_is_left_out(edges: str, hint: str) -> None:
    text = f"query q() {{ match {{ $p: P  $p {edges} $q }} return {{ $q.id as id }} }}"
    with pytest.raises(TypeCheckError) as refused:
        compile_query(text, accept(NODES))
    assert (refused.value.code, refused.value.hint) == ("T5", hint)
