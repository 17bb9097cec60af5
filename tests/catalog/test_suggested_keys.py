"""Which edge types a key is suggested for."""

import pytest

from omnigraph.catalog.accept import accept
from omnigraph.catalog.suggested_keys import suggested_keys
from omnigraph.plan.lint import lint


@pytest.mark.parametrize(
    ("edge", "key"),
    [
        ("edge E: A -> A", "@key(src, dst)"),
        ("edge E: A -> A { w: I32?  @unique(dst, src) }", "@key(src, dst)"),
        ("edge E: A -> A { w: I32  @unique(src, w, dst) }", "@key(src, dst, w)"),
        ("edge E: A -> A { w: I32?  @unique(src, w, dst) }", None),  # null would be exempt
        ("edge E: A -> A { w: I32?  @unique(src, w) }", None),
        ("edge E: A -> A { w: I32? }", None),
        ("edge E: A -> A @key(src, dst)", None),
    ],
)
def test_a_key_is_suggested_where_it_fits(edge: str, key: str | None) -> None:
    text = f"node A {{ k: String @key }}\n{edge}"
    (*suggested,) = suggested_keys(accept(text))
    assert [each.key for each in suggested] == ([] if key is None else [key])
    if key is not None:
        head, brace, body = edge.partition("{")
        kept = f"{head.rstrip()} {key} {brace}{body}"
        assert suggested_keys(accept(f"node A {{ k: String @key }}\n{kept}")) == ()


def test_lint_suggests_it_for_edges_that_are_inserted() -> None:
    catalog = accept("node A { k: String @key }\nedge E: A -> A\nedge F: A -> A")
    report = lint("query q($a: String) { insert E { from: $a, to: $a } }", catalog)
    (finding,) = report.findings
    assert (finding.code, finding.severity, finding.type_name) == ("L203", "info", "E")
    assert "@key(src, dst)" in finding.message
