"""Facts about lines, counted over the bytes of a block, are those of looking at each line."""

from hypothesis import example, given
from hypothesis import strategies as st

from omnigraph.exec.load.lines import line_count, lines_of

_LINES = st.lists(st.text('{}\r,ab"é', max_size=20).map(str.encode), max_size=6)
_ENDS = st.sampled_from([b"", b"\n", b"\r\n"])


@given(lines=_LINES, last=_ENDS)
@example(lines=[b"}\r", b"x\r"], last=b"")
@example(lines=[], last=b"")
def test_lines_are_cut_at_their_ends(lines: list[bytes], last: bytes) -> None:
    data = b"\n".join(lines) + last
    found = lines_of(data)
    ended = data if data.endswith(b"\n") else data + b"\n"
    wanted = ended.replace(b"}\r\n", b"}\n").split(b"\n")[:-1]
    places = zip(found.starts, found.ends, strict=True)
    assert [found.data[start:end] for start, end in places] == wanted
    assert len(found) == len(wanted) == line_count(found.data)
    assert found.longest == max(map(len, wanted)) + 1


@given(lines=_LINES.filter(bool))
@example(lines=[b"{}", b"{x", b"{}"])
@example(lines=[b"{}", b"x}", b"{}"])
@example(lines=[b"{}", b"", b"{}"])
def test_objects_are_told_by_their_first_and_last_byte(lines: list[bytes]) -> None:
    found = lines_of(b"\n".join(lines))
    wanted = found.data.split(b"\n")[:-1]
    assert found.are_objects() == all(
        line.startswith(b"{") and line.endswith(b"}") for line in wanted
    )


@given(
    prefix=st.binary(max_size=21).map(lambda b: b.replace(b"\n", b"x")),
    tails=st.lists(st.sampled_from([b"", b"a", b"abcdefgh"]), min_size=1, max_size=5),
    other=st.none() | st.integers(0, 20),
)
def test_a_line_that_begins_otherwise_is_seen(
    prefix: bytes, tails: list[bytes], other: int | None
) -> None:
    lines = [prefix + tail for tail in tails]
    if other is not None and other < len(prefix):
        changed = bytes([prefix[other] ^ 1 if prefix[other] != 11 else 65])
        lines[-1] = prefix[:other] + changed + prefix[other + 1 :] + tails[-1]
    found = lines_of(b"\n".join(lines) + b"\n")
    wanted = found.data.split(b"\n")[:-1]
    assert found.begin_with(prefix) == all(line.startswith(prefix) for line in wanted)


def test_text_that_is_none_and_null_members_are_seen() -> None:
    assert not lines_of(b'{"a":"\xff"}').are_objects()
    assert lines_of(b'{"a":1}\n{"type": null}').has_null_member(["edge", "type"])
    assert lines_of(b'{"a":"\\u0064"}\n{"ty\\u0070e": null}').has_null_member(["type"])
    assert not lines_of(b'{"a":null,"type":"null"}').has_null_member(["type"])
    assert lines_of(b'{"a":null}').are_objects()
