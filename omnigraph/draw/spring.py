"""Force-directed layout: positions of nodes by rustworkx's springs, the same at every visit.

Invariant: positions follow from the keys, their links and their order alone. Nodes that are laid
out in a later round leave those of earlier rounds where they are, so a picture grows and does not
jump.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from omnigraph.extras import require_draw

Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""Centre and size: x, y, width, height."""

_ITERATIONS, _LATER_ITERATIONS = 100, 12
_GOLDEN = math.pi * (3 - math.sqrt(5))
_SEED = 7
_PUSHES_MIN, _PUSHES_MAX, _PUSHED_PAIRS = 40, 400, 80_000


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
        known, starts = [*laid, *fresh], _starts(fresh, links, laid)
        index = {key: number for number, key in enumerate(known)}
        graph = rx.PyGraph(multigraph=False)
        graph.add_nodes_from(known)
        graph.add_edges_from_no_data(
            [(index[a], index[b]) for a, b in links if a in index and b in index and a != b]
        )
        after = rx.spring_layout(
            graph,
            pos={index[key]: point for key, point in (laid | starts).items()},
            fixed=set(range(len(laid))) or None,
            k=0.8,
            num_iter=_ITERATIONS if not laid else _LATER_ITERATIONS,
            seed=_SEED,
            scale=max(1, math.ceil(0.6 * math.sqrt(len(known)))),
        )
        laid |= {key: (float(after[index[key]][0]), float(after[index[key]][1])) for key in fresh}
    return laid


def _starts(
    fresh: Sequence[str], links: Sequence[tuple[str, str]], laid: Mapping[str, Point]
) -> dict[str, Point]:
    """Where nodes begin: around a neighbour that has its position, like seeds of a sunflower, which
    lie evenly however many there are."""
    others: dict[str, str] = {}
    for one, other in links:
        for key, near in ((one, other), (other, one)):
            if near in laid:
                others.setdefault(key, near)
    seeds: Counter[str] = Counter()
    starts = {}
    for key in fresh:
        near = others.get(key, "")
        seeds[near] += 1
        x, y = laid.get(near, (0.0, 0.0))
        far, turn = 0.8 + 0.62 * math.sqrt(seeds[near]), seeds[near] * _GOLDEN
        starts[key] = x + far * math.cos(turn), y + far * math.sin(turn)
    return starts


def separated(
    boxes: Mapping[str, Box], gap: float, fixed: frozenset[str] = frozenset()
) -> dict[str, Point]:
    """The centres of boxes, pushed apart until none overlaps another, or the pushes run out.

    Every round pushes each pair that overlaps along the shorter way out, half each."""
    keys = list(boxes)
    facts = np.array([boxes[key] for key in keys], dtype=float).reshape(-1, 4)
    centres, sizes = facts[:, :2].copy(), facts[:, 2:]
    reach = (sizes[:, None, :] + sizes[None, :, :]) / 2 + gap
    free = np.array([key not in fixed for key in keys])
    # Two boxes with one centre part along the order of their keys.
    sides = np.sign(np.arange(len(keys))[:, None] - np.arange(len(keys))[None, :])[:, :, None]
    pushes = _PUSHED_PAIRS // max(1, len(keys) ** 2)
    for _ in range(min(_PUSHES_MAX, max(_PUSHES_MIN, pushes))):
        apart = centres[:, None, :] - centres[None, :, :]
        over = reach - np.abs(apart)
        is_over = (over > 0.01).all(axis=2)
        np.fill_diagonal(is_over, val=False)
        if not is_over.any():
            break
        over[~is_over] = 0.0
        shorter = over.argmin(axis=2)[:, :, None] == np.arange(2)
        signs = np.where(apart == 0, sides, np.sign(apart))
        push = (over * shorter * signs).sum(axis=1) / 2
        # A box in a crowd is pushed from many sides; the mean of them keeps it from flying off.
        crowd = np.maximum(1, is_over.sum(axis=1) ** 0.5)[:, None]
        centres[free] += (push / crowd)[free]
    return {key: (float(x), float(y)) for key, (x, y) in zip(keys, centres, strict=True)}
