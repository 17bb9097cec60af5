"""Force-directed layout: positions of nodes by rustworkx's springs, the same at every visit.

Invariant: positions follow from the keys, their links and their order alone. Nodes that are laid
out in a later round leave those of earlier rounds where they are, so a picture grows and does not
jump.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence

from omnigraph.extras import require_draw

Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""Centre and size: x, y, width, height."""

_ITERATIONS = 120
_SEED = 7
_PUSHES = 200


def positions(
    rounds: Sequence[Sequence[str]],
    links: Sequence[tuple[str, str]],
    pinned: Mapping[str, Point] | None = None,
) -> dict[str, Point]:
    """A position for each key, about one apart; those of a round are laid out around those of the
    rounds before it. Pinned keys stay where they are put."""
    require_draw()
    import rustworkx as rx  # noqa: PLC0415  pictures are an extra

    placed: dict[str, Point] = dict(pinned or {})
    known: list[str] = []
    for keys in rounds:
        fixed = {number for number, key in enumerate(known) if key in placed}
        known += [key for key in keys if key not in set(known)]
        index = {key: number for number, key in enumerate(known)}
        fixed |= {index[key] for key in placed if key in index}
        graph = rx.PyGraph(multigraph=False)
        graph.add_nodes_from(known)
        graph.add_edges_from_no_data(
            [(index[a], index[b]) for a, b in links if a in index and b in index and a != b]
        )
        start = {n: placed.get(key) or _start(key, links, placed) for key, n in index.items()}
        if len(fixed) == len(known):
            continue
        laid = rx.spring_layout(
            graph,
            pos=start,
            fixed=fixed or None,
            k=1.0,
            num_iter=_ITERATIONS,
            seed=_SEED,
            scale=max(1.0, 0.6 * math.sqrt(len(known))),
        )
        for key, number in index.items():
            point = laid[number]
            placed[key] = placed.get(key, (float(point[0]), float(point[1])))
    return {key: placed[key] for key in known}


def _start(key: str, links: Sequence[tuple[str, str]], placed: Mapping[str, Point]) -> Point:
    """Where a node begins: near a neighbour that has its position, in a direction of its own."""
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
    turn = 2 * math.pi * int.from_bytes(digest[:4]) / 2**32
    near = next((placed[b if a == key else a] for a, b in links if key in (a, b)
                 and (b if a == key else a) in placed), (0.0, 0.0))
    return near[0] + math.cos(turn), near[1] + math.sin(turn)


def separated(boxes: Mapping[str, Box], gap: float, fixed: frozenset[str] = frozenset()) -> dict[str, Point]:
    """The centres of boxes, pushed apart until none overlaps another."""
    centres = {key: (box[0], box[1]) for key, box in boxes.items()}
    keys = list(boxes)
    for _ in range(_PUSHES):
        is_moved = False
        for n, one in enumerate(keys):
            for other in keys[n + 1 :]:
                is_moved |= _push(one, other, boxes, centres, gap, fixed)
        if not is_moved:
            break
    return centres


def _push(
    one: str,
    other: str,
    boxes: Mapping[str, Box],
    centres: dict[str, Point],
    gap: float,
    fixed: frozenset[str],
) -> bool:
    (x, y), (u, v) = centres[one], centres[other]
    _, _, width, height = boxes[one]
    _, _, other_width, other_height = boxes[other]
    over_x = (width + other_width) / 2 + gap - abs(x - u)
    over_y = (height + other_height) / 2 + gap - abs(y - v)
    if over_x <= 0 or over_y <= 0 or (one in fixed and other in fixed):
        return False
    step_x, step_y = (over_x, 0.0) if over_x < over_y else (0.0, over_y)
    step_x, step_y = math.copysign(step_x, u - x), math.copysign(step_y, v - y)
    share = 0.0 if one in fixed else 1.0 if other in fixed else 0.5
    centres[one] = x - step_x * share, y - step_y * share
    centres[other] = u + step_x * (1 - share), v + step_y * (1 - share)
    return True
