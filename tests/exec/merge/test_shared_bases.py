"""Merge bases of many commits at once are those that the pairs have one by one."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.exec.merge.ancestry import meeting
from omnigraph.exec.merge.shared_bases import shared_bases
from omnigraph.storage.records import Commit, CommitId
from tests.exec.merge.test_merge_history import dag, histories


@given(commits=histories(), data=st.data())
def test_they_are_those_of_all_pairs(commits: dict[CommitId, Commit], data: st.DataObject) -> None:
    points = data.draw(st.permutations(sorted(commits)))[:6]
    bases = {base.id: base for base in shared_bases(commits, points)}
    by_pair = {
        pair: {base.id for base in meeting(commits.get, *pair).bases}
        for pair in combinations(points, 2)
    }
    living = {id_ for id_, base in bases.items() if not base.is_gone}
    assert living == set().union(*by_pair.values())
    for id_ in living:
        assert id_ in by_pair[(bases[id_].ours, bases[id_].theirs)]
    kept = {child for base in bases.values() if base.is_gone for child in base.children}
    for ours, theirs in by_pair:
        for pair in ((ours, theirs), (theirs, ours)):
            assert {merge.id for merge in meeting(commits.get, *pair).forgotten} <= kept


def test_three_that_share_by_twos_have_no_base_of_all() -> None:
    commits = dag(r="", x="r", y="r", z="r", p="x y", q="y z", s="x z")
    points = [CommitId(each) for each in "pqs"]
    assert {base.id for base in shared_bases(commits, points)} == {"x", "y", "z"}


def test_many_branches_at_one_commit_have_it_as_base() -> None:
    count = 2_000
    commits = dag(root="", **{f"b{number}": "root" for number in range(count)})
    (base,) = shared_bases(commits, [CommitId(f"b{number}") for number in range(count)])
    assert (base.id, base.ours, base.theirs) == ("root", "b0", "b1")
