"""Did-you-mean hints: a slip is answered with the name, anything else with what there is."""

import pytest

from omnigraph.catalog.near_names import did_you_mean, nearest


@pytest.mark.parametrize(
    ("written", "meant"),
    [("nmae", "name"), ("aks", "ask"), ("Persn", "Person"), ("works_at", "worksAt")],
)
def test_a_slip_is_near_the_name_it_is_of(written: str, meant: str) -> None:
    assert nearest(written, ["init", "qty", meant]) == meant


@pytest.mark.parametrize(("written", "other"), [("entity", "init"), ("nofile", "routes")])
def test_a_name_that_shares_some_letters_is_not_near(written: str, other: str) -> None:
    assert nearest(written, [other]) is None


def test_a_list_of_known_names_that_is_cut_says_how_many_are_left() -> None:
    names = [f"p{number}" for number in range(8)]
    assert did_you_mean("zzz", names) == "known: p0, p1, p2, p3, p4, p5, p6, p7"
    more = did_you_mean("zzz", [*names, "p8", "p9"])
    assert more == "known: p0, p1, p2, p3, p4, p5, p6, p7 and 2 more"
