"""`Graph.page`, `neighbourhood` and `draw`: a graph as people look at it, a page or a picture.

Invariant: these methods find the snapshot that is named and ask the rooms that read and draw,
nothing else. Each reads a page or a budget, never a table.
"""

from collections.abc import Collection, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from omnigraph.arguments import checked
from omnigraph.deferred import deferred
from omnigraph.errors import BadRequest
from omnigraph.exec.points import Points
from omnigraph.exec.schemas import Schemas
from omnigraph.graph.policy_guard import PolicyGuard
from omnigraph.storage.names import MAIN, require_text
from omnigraph.storage.store import Store

if TYPE_CHECKING:
    from omnigraph.draw.change_picture import change_picture
    from omnigraph.draw.commit_lanes import commits_picture
    from omnigraph.draw.commit_order import in_order
    from omnigraph.draw.neighbourhood_picture import neighbourhood_picture
    from omnigraph.draw.schema_picture import schema_picture
    from omnigraph.draw.svg import Picture
    from omnigraph.exec.changes.diff import changes_between, filters
    from omnigraph.exec.changes.entity_page import EntityPage, ListedEntity
    from omnigraph.exec.changes.entity_page import entities_by_id as _by_id
    from omnigraph.exec.changes.entity_page import entity_page as _page
    from omnigraph.exec.changes.entity_view import require_entity, require_type
    from omnigraph.exec.changes.neighbourhood import Expansion, Neighbourhood, Surroundings
else:
    change_picture = deferred("omnigraph.draw.change_picture", "change_picture")
    commits_picture = deferred("omnigraph.draw.commit_lanes", "commits_picture")
    in_order = deferred("omnigraph.draw.commit_order", "in_order")
    neighbourhood_picture = deferred(
        "omnigraph.draw.neighbourhood_picture", "neighbourhood_picture"
    )
    schema_picture = deferred("omnigraph.draw.schema_picture", "schema_picture")
    Picture = deferred("omnigraph.draw.svg", "Picture")
    changes_between = deferred("omnigraph.exec.changes.diff", "changes_between")
    filters = deferred("omnigraph.exec.changes.diff", "filters")
    EntityPage = deferred("omnigraph.exec.changes.entity_page", "EntityPage")
    ListedEntity = deferred("omnigraph.exec.changes.entity_page", "ListedEntity")
    _by_id = deferred("omnigraph.exec.changes.entity_page", "entities_by_id")
    _page = deferred("omnigraph.exec.changes.entity_page", "entity_page")
    require_entity = deferred("omnigraph.exec.changes.entity_view", "require_entity")
    require_type = deferred("omnigraph.exec.changes.entity_view", "require_type")
    Expansion = deferred("omnigraph.exec.changes.neighbourhood", "Expansion")
    Neighbourhood = deferred("omnigraph.exec.changes.neighbourhood", "Neighbourhood")
    Surroundings = deferred("omnigraph.exec.changes.neighbourhood", "Surroundings")

_PAGE_MAX = 1_000
_COMMITS_DRAWN, _CHANGES_DRAWN = 100, 300


class LookVerbs:
    """The verbs of a graph that show it to people."""

    _store: Store
    _schemas: Schemas
    _points: Points
    _guard: PolicyGuard

    @checked
    def page(
        self,
        kind: str,
        type: str,
        *,
        offset: int = 0,
        limit: int = 50,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> EntityPage:
        """Nodes or edges of a type from an offset on, in the order of their table. Pages of one
        commit join; the cost follows the page, not the table.

        >>> graph.page("node", "Person", limit=1).next_offset
        1
        """
        if offset < 0 or not 0 < limit <= _PAGE_MAX:
            raise BadRequest(
                f"a page cannot have offset {offset} and limit {limit}",
                f"count from 0, and ask for 1 to {_PAGE_MAX}",
            )
        pinned = self._guard.pinned(branch, snapshot)
        owner = require_type(self._schemas.of(pinned).catalog, kind, type)
        return _page(self._store, pinned, owner, offset, limit)

    @checked
    def listed(
        self,
        kind: str,
        type: str,
        ids: Sequence[str],
        *,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> tuple[ListedEntity, ...]:
        """These nodes or edges of a type, in this order; those that are not there are left out.

        >>> [each.id for each in graph.listed("node", "Person", ["Bob", "Nobody", "Ada"])]
        ['Bob', 'Ada']
        """
        for each in ids:
            require_text("an id", each)
        pinned = self._guard.pinned(branch, snapshot)
        owner = require_type(self._schemas.of(pinned).catalog, kind, type)
        return _by_id(self._store, pinned, owner, ids)

    @checked
    def neighbourhood(
        self,
        type: str,
        id: str,
        expand: Sequence[Expansion] | None = None,
        *,
        offers_of: tuple[str, str] | None = None,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> Neighbourhood:
        """A node, the edges that the expansions ask for, and the nodes at their other ends: at most
        300. Its offers are how else it, or the node `offers_of`, can be expanded.

        >>> sorted(graph.neighbourhood("Person", "Ada").nodes)
        ['Person:Ada', 'Person:Bob']
        """
        require_text("an id", id)
        for each in expand or ():
            if not isinstance(each, Expansion):
                raise BadRequest(f"{each!r} is no expansion", "give Expansion(type, id, edge, …)")
        for text in offers_of or ():
            require_text("a type or an id of offers_of", text)
        if offers_of is not None and len(offers_of) != 2:
            raise BadRequest(f"offers_of has {len(offers_of)} parts", "give a type and an id")
        pinned = self._guard.pinned(branch, snapshot)
        catalog = self._schemas.of(pinned).catalog
        owner = require_type(catalog, "node", type)
        require_entity(self._store, pinned, owner, id)
        with self._store.history.lost.reading(pinned):
            around = Surroundings(self._store, catalog, pinned)
            seen = around.neighbourhood(catalog.nodes[owner.name], id, expand)
            chosen_type, chosen = offers_of or (type, id)
            chosen_owner = require_type(catalog, "node", chosen_type)
            seen.offers = around.offers(catalog.nodes[chosen_owner.name], chosen, seen)
            return seen

    @checked
    def draw(
        self,
        what: str = "commits",
        *points: str,
        branch: str | None = None,
        types: Collection[str] = (),
        limit: int | None = None,
    ) -> Picture:
        """A picture, which a notebook shows: `draw("commits")`, `draw("schema")`,
        `draw("entity", type, id)` or `draw("diff", before, after)`.

        >>> picture = graph.draw("schema")  # picture.save("schema.svg")
        """
        match what, points:
            case "commits", ():
                return self._draw_commits(branch, _COMMITS_DRAWN if limit is None else limit)
            case "schema", ():
                catalog = self._schemas.of(self._guard.pinned(branch, None)).catalog
                return schema_picture(f"Schema of {branch or MAIN}", catalog)
            case "entity", (type_name, entity):
                seen = self.neighbourhood(type_name, entity, branch=branch)
                return neighbourhood_picture(f"{type_name} {entity}", seen)
            case "diff", (before, after):
                return self._draw_diff(before, after, types, limit or _CHANGES_DRAWN)
            case _:
                raise BadRequest(
                    f"'{what}' with {len(points)} argument(s) cannot be drawn",
                    "use commits, schema, entity TYPE ID, or diff BEFORE AFTER",
                )

    def _draw_commits(self, branch: str | None, limit: int) -> Picture:
        if branch is None:
            self._guard.reads_graph()
            commits = self._store.history.list_all(limit=limit)
        else:
            self._guard.reads_point(branch)
            commits = self._points.history(branch, limit=limit)
        order = in_order({commit.id: commit for commit in commits})
        title = f"Commits of {branch}" if branch else "Commits of all branches"
        return commits_picture(title, order, self._points.names())

    def _draw_diff(self, before: str, after: str, types: Collection[str], limit: int) -> Picture:
        old, new = self._guard.seen(before), self._guard.seen(after)
        chosen = filters(self._schemas.of(new).catalog, (), types, ())
        changes = changes_between(self._store, self._schemas, old, new, chosen)
        catalog = self._schemas.of(new).catalog
        return change_picture(f"{before} to {after}", islice(changes, limit), catalog)
