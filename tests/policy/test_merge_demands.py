"""Demands of a policy on merges: approvals and checks by target."""

import pytest

from omnigraph.errors import PolicyInvalid
from omnigraph.policy import Action, Policy, PolicyKind, TargetCheck, parse_policy

HEAD = "version: 1\ngroups: {all: [ada]}\n"
LIST = "rules: [{id: r, allow: {actors: {group: all}, actions: [graph_list]}}]\n"


def test_the_greatest_number_that_matches_is_needed_and_every_check() -> None:
    merges = parse_policy(
        HEAD
        + "required_approvals: {main: 1, 'm*': 3, 'release/*': 2}\n"
        + "checks: [{target: main, query: a}, {target: '*', query: b}, {target: 'm*', query: a}]\n"
    ).merges
    assert merges.checks[0] == TargetCheck("main", "a")
    assert [merges.approvals_for(name) for name in ("main", "mine", "release/1", "x", "Main")] == [
        3,
        3,
        2,
        0,
        0,
    ]
    assert merges.checks_for("main") == ("a", "b")
    assert merges.checks_for("release/1") == ("b",)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("required_approvals: [main]", "wrong_type"),
        ("required_approvals: {main: 0}", "wrong_count"),
        ("required_approvals: {main: -1}", "wrong_count"),
        ("required_approvals: {main: 101}", "wrong_count"),
        ("required_approvals: {main: true}", "wrong_count"),
        ("required_approvals: {main: '1'}", "wrong_count"),
        ("required_approvals: {main: 1.5}", "wrong_count"),
        ("required_approvals: {' ': 1}", "blank_branch"),
        ("required_approvals: {5: 1}", "wrong_type"),
        ("required_approvals: {main: 1, main: 2}", "duplicate_member"),
        ("checks: {target: main, query: q}", "wrong_type"),
        ("checks: [main]", "wrong_type"),
        ("checks: [{target: main}]", "missing_member"),
        ("checks: [{query: q}]", "missing_member"),
        ("checks: [{target: '', query: q}]", "blank_branch"),
        ("checks: [{target: main, query: ' '}]", "blank_query"),
        ("checks: [{target: main, query: q, rows: 1}]", "unknown_member"),
        (f"{LIST}required_approvals: {{main: 1}}", "wrong_kind"),
        (f"{LIST}checks: [{{target: main, query: q}}]", "wrong_kind"),
    ],
)
def test_what_is_no_demand_is_refused_with_its_code(text: str, code: str) -> None:
    with pytest.raises(PolicyInvalid) as refused:
        parse_policy(HEAD + text)
    assert refused.value.code == code


def test_a_file_with_demands_alone_is_for_a_graph() -> None:
    assert parse_policy(f"{HEAD}required_approvals: {{main: 1}}").kind is PolicyKind.GRAPH
    with pytest.raises(PolicyInvalid):
        parse_policy(f"{HEAD}required_approvals: {{main: 1}}", kind=PolicyKind.SERVER)


def test_the_action_review_is_about_its_target() -> None:
    policy = Policy.of_text(
        f"{HEAD}protected_branches: [main]\n"
        "rules: [{id: r, allow: {actors: {group: all}, actions: [review],"
        " target_branch_scope: unprotected}}]\n"
    )
    assert policy.decide("ada", Action.REVIEW, "main", "draft").allowed
    assert not policy.decide("ada", Action.REVIEW, "draft", "main").allowed
    assert not policy.decide("ada", Action.REVIEW).allowed
