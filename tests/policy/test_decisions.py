"""Decisions: the three steps of the definition, the words of a denial, protected branches."""

import pickle
import threading

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.policy import Action, action_of
from omnigraph.policy.actions import SCOPE_KEYS
from omnigraph.policy.protected_branches import ProtectedBranches
from tests.policy.reference import PlainPolicy, PlainRule, decided, is_protected
from tests.policy.test_policy_file import GOOD, SERVER

NAMES = st.text("abÄ\"'\\{}*-/é", min_size=1, max_size=4)
ACTORS = ("ada", "bob", 'q"\\', "аda", "ADA")
GROUPS = ("g", 'h"', "ünï", "\\u{41}")
BRANCHES = ("main", "Main", "release/1", "release/1/fix", "release", "x*y", "draft", "main.")
PROTECTED = ("main", "release/*", "*fix", "x*y", "r*/1", "*", "draft")
PLAIN_ACTIONS = [str(action) for action in Action if action is not Action.GRAPH_LIST]


@st.composite
def rules(draw: st.DrawFn, groups: list[str]) -> PlainRule:
    scoped = draw(st.sampled_from([None, "branch_scope", "target_branch_scope"]))
    fitting = [a for a in PLAIN_ACTIONS if scoped is None or SCOPE_KEYS.get(Action(a)) == scoped]
    rule = PlainRule(
        draw(NAMES),
        draw(st.sampled_from(groups)),
        draw(st.lists(st.sampled_from(fitting), min_size=1, max_size=3, unique=True)),
    )
    if scoped is not None:
        setattr(rule, scoped, draw(st.sampled_from(["any", "protected", "unprotected"])))
    return rule


@st.composite
def policies(draw: st.DrawFn) -> PlainPolicy:
    groups = draw(st.lists(st.sampled_from(GROUPS), min_size=1, max_size=3, unique=True))
    members = st.lists(st.sampled_from(ACTORS), min_size=1, max_size=3)
    return PlainPolicy(
        {group: draw(members) for group in groups},
        draw(st.lists(st.sampled_from(PROTECTED), max_size=2)),
        draw(st.lists(rules(groups), max_size=6, unique_by=lambda rule: rule.id)),
    )


def written(plain: PlainPolicy) -> str:
    listed = []
    for rule in plain.rules:
        allow: dict[str, object] = {"actors": {"group": rule.group}, "actions": rule.actions}
        for key in ("branch_scope", "target_branch_scope"):
            if getattr(rule, key) is not None:
                allow[key] = getattr(rule, key)
        listed.append({"id": rule.id, "allow": allow})
    document = {
        "version": 1,
        "groups": plain.groups,
        "protected_branches": plain.protected,
        "rules": listed,
    }
    dumper = yaml.SafeDumper
    dumper.ignore_aliases = lambda *_: True  # type: ignore[method-assign, assignment]
    return yaml.dump(document, Dumper=dumper, allow_unicode=True)


QUESTIONS = st.tuples(
    st.sampled_from([*ACTORS, "eve"]),
    st.sampled_from(PLAIN_ACTIONS),
    st.sampled_from([None, *BRANCHES]),
    st.sampled_from([None, *BRANCHES]),
)


@settings(deadline=None)
@given(plain=policies(), questions=st.lists(QUESTIONS, min_size=1, max_size=12))
def test_cedar_decides_as_the_definition(
    plain: PlainPolicy, questions: list[tuple[str, str, str | None, str | None]]
) -> None:
    policy = og.Policy.of_text(written(plain))
    for question in [*questions, *questions]:  # the second time from what was kept
        actor, action, branch, target = question
        decision = policy.decide(actor, Action(action), branch, target)
        rule, text = decided(plain, actor, action, branch, target)
        assert decision.matched_rule == rule, question
        assert decision.allowed is (rule is not None)
        if rule is None:
            assert str(decision.denial) == text
            with pytest.raises(og.Forbidden):
                decision.require()
        else:
            assert policy.may_ever(actor, Action(action))
            decision.require()


@settings(deadline=None)
@given(
    patterns=st.lists(st.text("ab/*.?[", max_size=5), max_size=3),
    branch=st.text("ab/*.?[", max_size=8),
)
def test_protected_patterns_match_as_the_definition(patterns: list[str], branch: str) -> None:
    plain = PlainPolicy({}, patterns, [])
    assert (branch in ProtectedBranches(patterns)) is is_protected(plain, branch)


def test_a_plain_name_protects_itself_and_no_other() -> None:
    protected = ProtectedBranches(["main", "re.ease", "release/*"])
    assert "main" in protected
    for other in ("Main", "MAIN", "main.", "main ", " main", "main/", "mаin", "main\n", ""):
        assert other not in protected
    assert "release" not in protected
    assert "rexease" not in protected
    assert "release/1" in protected
    assert "release/1/fix" in protected
    assert "release/" in protected
    assert "Release/1" not in protected


def test_a_pattern_takes_time_in_proportion_to_the_name() -> None:
    protected = ProtectedBranches(["*a" * 30 + "*b"])
    assert "a" * 20_000 not in protected
    assert "a" * 20_000 + "b" in protected


def test_the_words_of_a_denial_are_those_of_the_specification() -> None:
    policy = og.Policy.of_text(GOOD)
    cases = {
        ("act-bob", Action.CHANGE, "main", None): (
            "policy denied action 'change' on branch 'main' for actor 'act-bob'"
        ),
        ("act-bob", Action.BRANCH_MERGE, "draft", "main"): (
            "policy denied action 'branch_merge' on branch 'draft' targeting branch 'main' "
            "for actor 'act-bob'"
        ),
        ("act-bob", Action.BRANCH_DELETE, None, "x"): (
            "policy denied action 'branch_delete' targeting branch 'x' for actor 'act-bob'"
        ),
        ("act-eve", Action.CHANGE, "main", None): (
            "policy denied action 'change' for unknown actor 'act-eve'"
        ),
    }
    for question, text in cases.items():
        denial = policy.decide(*question).denial
        assert str(denial) == text
        assert str(pickle.loads(pickle.dumps(denial))) == text
    nobody = policy.decide(None, Action.CHANGE, "main")
    assert not nobody.allowed
    assert "no actor is given" in str(nobody.denial)


def test_a_very_long_name_is_cut_in_the_words_and_not_in_the_decision() -> None:
    policy = og.Policy.of_text(GOOD)
    decision = policy.decide("act-bob", Action.READ, "x" * 1_000_000)
    assert decision.allowed
    denial = policy.decide("y" * 1_000_000, Action.READ, "x" * 1_000_000).denial
    assert len(str(denial)) < 1_000


def test_the_smallest_rule_that_allows_is_named() -> None:
    policy = og.Policy.of_text("""
version: 1
groups: {a: [x], b: [x]}
rules:
  - {id: z, allow: {actors: {group: a}, actions: [read]}}
  - {id: k, allow: {actors: {group: b}, actions: [read]}}
  - {id: b, allow: {actors: {group: b}, actions: [change]}}
""")
    assert policy.decide("x", Action.READ).matched_rule == "k"


def test_a_server_policy_grants_the_list_of_graphs_alone() -> None:
    policy = og.Policy.of_text(SERVER)
    assert policy.decide("a", Action.GRAPH_LIST).matched_rule == "list"
    assert not policy.decide("b", Action.GRAPH_LIST).allowed
    assert not policy.decide("a", Action.READ).allowed


def test_actions_are_spelled_with_hyphens_or_underscores() -> None:
    assert action_of("branch-merge") is action_of("branch_merge") is Action.BRANCH_MERGE
    with pytest.raises(og.BadRequest):
        action_of("write")


def test_many_threads_share_a_policy() -> None:
    policy = og.Policy.of_text(GOOD)
    wrong: list[object] = []

    def ask() -> None:
        for number in range(200):
            branch = ("main", "draft")[number % 2]
            decision = policy.decide("act-ada", Action.CHANGE, branch)
            if decision.allowed is not (branch == "draft"):
                wrong.append(decision)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
