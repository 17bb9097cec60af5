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
    rounds: Sequence[Sequence[str]], links: Sequence[tuple[str, str]]
) -> dict[str, Point]:
    """A position for each key, about one apart; those of a round are laid out around those of the
    rounds before it."""
    require_draw()
    import rustworkx as rx  # noqa: PLC0415  pictures are an extra

    laid: dict[str, Point] = {}
    for keys in rounds:
        fresh = [key for key in dict.fromkeys(keys) if key not in laid]
        if not fresh:
            continue
        known = [*laid, *fresh]
        index = {key: number for number, key in enumerate(known)}
        graph = rx.PyGraph(multigraph=False)
        graph.add_nodes_from(known)
        graph.add_edges_from_no_data(
            [(index[a], index[b]) for a, b in links if a in index and b in index and a != b]
        )
        after = rx.spring_layout(
            graph,
            pos={n: laid.get(key) or _start(key, links, laid) for key, n in index.items()},
            fixed=set(range(len(laid))) or None,
            k=1.0,
            num_iter=_ITERATIONS,
            seed=_SEED,
            scale=max(1.0, 0.6 * math.sqrt(len(known))),
        )
        laid |= {key: (float(after[index[key]][0]), float(after[index[key]][1])) for key in fresh}
    return laid


def _start(key: str, links: Sequence[tuple[str, str]], laid: Mapping[str, Point]) -> Point:
    """Where a node begins: near a neighbour that has its position, in a direction of its own."""
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
    turn = 2 * math.pi * int.from_bytes(digest[:4]) / 2**32
    near = next((laid[b if a == key else a] for a, b in links if key in (a, b)
                 and (b if a == key else a) in laid), (0.0, 0.0))
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
