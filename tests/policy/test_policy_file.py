"""The policy file: what is read, and every way in which a file is refused."""

from pathlib import Path

import pytest
import yaml

import omnigraph as og
from omnigraph.policy import PolicyKind, parse_policy
from omnigraph.policy.policy_cases import parse_cases

GOOD = """
version: 1
groups:
  editors: [act-ada, act-bob]
  admins:  [act-root]
protected_branches: [main, release]
rules:
  - id: editors-read
    allow:
      actors:  { group: editors }
      actions: [read, export]
  - id: editors-write-drafts
    allow:
      actors:  { group: editors }
      actions: [change]
      branch_scope: unprotected
  - id: admins-merge
    allow:
      actors:  { group: admins }
      actions: [branch_merge, branch_delete, schema_apply]
      target_branch_scope: any
"""
SERVER = """
version: 1
groups: { all: [a] }
rules: [{ id: list, allow: { actors: { group: all }, actions: [graph_list] } }]
"""


def with_rule(**allow: object) -> str:
    rule = {"id": "r", "allow": {"actors": {"group": "g"}, "actions": ["read"], **allow}}
    return yaml.safe_dump({"version": 1, "groups": {"g": ["a"]}, "rules": [rule]})


def test_a_file_is_read_as_it_is_written() -> None:
    file = parse_policy(GOOD)
    assert file.kind is PolicyKind.GRAPH
    assert file.actors == {"act-ada", "act-bob", "act-root"}
    assert file.protected_branches == ("main", "release")
    assert [rule.id for rule in file.rules] == [
        "editors-read",
        "editors-write-drafts",
        "admins-merge",
    ]
    assert parse_policy(SERVER).kind is PolicyKind.SERVER
    assert parse_policy("version: 1").kind is None


REFUSED = {
    "unsupported_version": [
        "{}",
        "version: 2",
        "version: '1'",
        "version: true",
        "version: 1.0",
        "groups: {}",
    ],
    "unknown_member": [
        "version: 1\nallow: []",
        "version: 1\nrules: [{id: a, deny: {}}]",
        with_rule(branches=["main"]),
        "version: 1\ngroups: {g: [a]}\n"
        "rules: [{id: r, allow: {actors: {actor: a}, actions: [read]}}]",
        "version: 1\n1: 2",
    ],
    "duplicate_member": ["version: 1\nversion: 1", "version: 1\ngroups: {g: [a], g: [b]}"],
    "unreadable": [
        "version: [",
        "version: 1\n[a]: 2",
        "a: *x",
        "version: 1\ngroups: {<<: {g: [a]}}",
        "!!python/name:os.system x",
    ],
    "wrong_type": [
        "",
        "[]",
        "version: 1\ngroups: [a]",
        "version: 1\ngroups: {g: a}",
        "version: 1\ngroups: {g: [1]}",
        "version: 1\ngroups: {g: [yes]}",
        "version: 1\ngroups: {g: [null]}",
        "version: 1\ngroups: {1: [a]}",
        "version: 1\ngroups: {g: ['a ']}",
        "version: 1\nprotected_branches: main",
        "version: 1\nprotected_branches: [2]",
        "version: 1\nrules: {}",
        "version: 1\nrules: [x]",
        with_rule(actors="g"),
        with_rule(actions="read"),
        with_rule(actions=[1]),
    ],
    "missing_member": [
        "version: 1\nrules: [{allow: {}}]",
        "version: 1\nrules: [{id: a}]",
        "version: 1\nrules: [{id: a, allow: {actions: [read]}}]",
        "version: 1\nrules: [{id: a, allow: {actors: {}, actions: [read]}}]",
    ],
    "blank_group": ["version: 1\ngroups: {' ': [a]}", with_rule(actors={"group": ""})],
    "empty_group": ["version: 1\ngroups: {g: []}"],
    "blank_actor": ["version: 1\ngroups: {g: ['']}", "version: 1\ngroups: {g: [a, '\t']}"],
    "blank_branch": ["version: 1\nprotected_branches: [' ']"],
    "blank_rule": ["version: 1\nrules: [{id: '', allow: {}}]"],
    "duplicate_rule": [GOOD + GOOD[GOOD.index("  - id") :]],
    "unknown_group": [with_rule(actors={"group": "h"})],
    "no_actions": [with_rule(actions=[]), with_rule(actions=None)],
    "unknown_action": [with_rule(actions=["write"]), with_rule(actions=["branch-merge"])],
    "blank_action": [with_rule(actions=[""])],
    "both_scopes": [with_rule(branch_scope="any", target_branch_scope="any")],
    "scope_not_taken": [
        with_rule(target_branch_scope="any"),
        with_rule(actions=["branch_merge"], branch_scope="any"),
        with_rule(actions=["change", "branch_merge"], branch_scope="any"),
        with_rule(actions=["invoke_query"], branch_scope="any"),
        with_rule(actions=["admin"], target_branch_scope="any"),
        with_rule(actions=["graph_list"], branch_scope="any"),
    ],
    "unknown_scope": [with_rule(branch_scope="main")],
    "blank_scope": [with_rule(branch_scope="")],
    "mixed_kinds": [with_rule(actions=["read", "graph_list"])],
    "wrong_kind": [
        GOOD + "  - { id: z, allow: { actors: { group: admins }, actions: [graph_list] } }"
    ],
}


@pytest.mark.parametrize(
    ("code", "text"), [(code, text) for code, texts in REFUSED.items() for text in texts]
)
def test_a_file_that_cannot_be_used_is_refused_with_a_code(code: str, text: str) -> None:
    with pytest.raises(og.PolicyInvalid) as refusal:
        parse_policy(text)
    assert refusal.value.code == code, refusal.value
    assert refusal.value.where.startswith("policy")


def test_a_file_of_the_other_kind_is_refused_where_one_is_expected() -> None:
    for text, kind in ((GOOD, PolicyKind.SERVER), (SERVER, PolicyKind.GRAPH)):
        with pytest.raises(og.PolicyInvalid) as refusal:
            parse_policy(text, kind=kind)
        assert refusal.value.code == "wrong_kind"


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"version: \xff")
    for path in (tmp_path / "missing", tmp_path, tmp_path / "latin", "\0"):
        with pytest.raises(og.PolicyInvalid) as refusal:
            og.Policy.of_file(path)
        assert refusal.value.code == "unreadable"


CASE = "{id: a, actor: x, action: read, expect: allow}"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("unsupported_version", f"cases: [{CASE}]"),
        ("unknown_member", "version: 1\ncases: [{id: a, user: x}]"),
        ("duplicate_case", f"version: 1\ncases: [{CASE}, {CASE}]"),
        ("blank_case", "version: 1\ncases: [{id: ' ', actor: x, action: read, expect: allow}]"),
        ("unknown_action", "version: 1\ncases: [{id: a, actor: x, action: see, expect: allow}]"),
        ("unknown_expect", "version: 1\ncases: [{id: a, actor: x, action: read, expect: maybe}]"),
        ("missing_member", "version: 1\ncases: [{id: a, actor: x, action: read}]"),
        ("missing_member", "version: 1\ncases: [{id: a, action: read, expect: deny}]"),
    ],
)
def test_tests_that_cannot_be_used_are_refused(code: str, text: str) -> None:
    with pytest.raises(og.PolicyInvalid) as refusal:
        parse_cases(text)
    assert refusal.value.code == code, refusal.value


def test_the_cases_of_a_policy_are_all_decided() -> None:
    policy = og.Policy.of_text(GOOD)
    cases = parse_cases("""
version: 1
cases:
  - id: bob-cannot-write-main
    actor: act-bob
    action: change
    branch: main
    expect: deny
  - { id: root-merges, actor: act-root, action: branch-merge, branch: draft,
      target_branch: main, expect: allow }
  - { id: bob-reads, actor: act-bob, action: read, expect: deny }
  - { id: nobody, actor: nobody, action: read, expect: allow }
""")
    failures = [case.failure(policy) for case in cases]
    assert failures == [
        None,
        None,
        "bob-reads: expected Deny but got allow",
        "nobody: expected Allow but got deny",
    ]
