"""Tool table: every tool that is one operation of the HTTP API, with its schemas and hints.

Invariant: a tool is one row. Its hints are honest: a tool that changes nothing is read-only, one
that can lose data is destructive, one that does nothing more the second time is idempotent.
"""

from dataclasses import dataclass

from omnigraph.server import wire, wire_beyond, wire_changes, wire_entities
from omnigraph.server.mcp.answer_schemas import JsonSchema, answer_schema
from omnigraph.server.mcp.tool_arguments import (
    GRAPH,
    INCLUDE,
    LIMIT,
    MESSAGE,
    NAME,
    PAGE,
    PARAMS,
    SWITCH,
    Argument,
    RequestPart,
    branch,
    filters,
    one_of,
    snapshot,
    whole,
)

WAIT_MS_MAX = 60_000
_QUERY = Argument("query", "The text of the query.", RequestPart.BODY, NAME, required=True)
_NAME = Argument("name", "Which query of the text, if it has several.", RequestPart.BODY, NAME)
_PARAMS = Argument("params", "Values of its parameters, by name.", RequestPart.BODY, PARAMS)
_COMMIT = Argument(
    "commit",
    "Its id, or a point: a branch, a tag, main~3.",
    RequestPart.PATH,
    NAME,
    required=True,
    wire="commit_id",
)
_ENTITY = (
    Argument("kind", "Whether it is a node or an edge.", RequestPart.PATH, one_of("node", "edge")),
    Argument("type", "Its type.", RequestPart.PATH, NAME, required=True),
    Argument("id", "Its id; of a type with a key, the key.", RequestPart.PATH, NAME, required=True),
)
_RESOLUTION: JsonSchema = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "entity_kind": one_of("node", "edge"),
            "type_name": NAME,
            "entity_id": NAME,
            "take": {
                "description": "source, target, or an object of properties to set.",
                "anyOf": [one_of("source", "target"), {"type": "object"}],
            },
        },
        "required": ["type_name", "entity_id", "take"],
        "additionalProperties": False,
    },
}


@dataclass(frozen=True, slots=True)
class AgentTool:
    """One tool. `operation` is empty for a tool that is composed of several operations; `listed`
    names the list of its result that is cut or paged; `free_text` is one that runs what an agent
    writes."""

    name: str
    title: str
    about: str
    operation: str
    arguments: tuple[Argument, ...]
    answers: JsonSchema
    reads: bool = True
    destructive: bool = False
    idempotent: bool = True
    free_text: bool = False
    listed: str = ""


OPERATION_TOOLS: tuple[AgentTool, ...] = (
    AgentTool(
        "health",
        "Health",
        "Whether OmniGraph answers, and which version it is.",
        "health",
        (),
        answer_schema(wire.HealthOutput),
    ),
    AgentTool(
        "graphs_list",
        "List graphs",
        "The graphs that can be named as `graph`.",
        "listGraphs",
        (),
        answer_schema(wire.GraphList),
        listed="graphs",
    ),
    AgentTool(
        "snapshot",
        "Count entities",
        "How many entities each type has, on a branch or at an earlier commit.",
        "cluster_getSnapshot",
        (GRAPH, branch(RequestPart.QUERY), snapshot(RequestPart.QUERY)),
        answer_schema(wire.SnapshotOutput),
        listed="datasets",
    ),
    AgentTool(
        "query",
        "Run a read query",
        "Run a query that reads, such as `query q($n: String) { match { $p: Person { name: $n } "
        "$p knows $f } return { $f.name } order { $f.name } limit 20 }`. Call schema_get first. A "
        "result that is too long is cut; `truncated.next` holds the arguments that go on.",
        "cluster_query",
        (
            GRAPH,
            _QUERY,
            _NAME,
            _PARAMS,
            branch(RequestPart.BODY),
            snapshot(RequestPart.BODY),
            Argument("rows_from", "Skip so many rows of the result.", shape=whole(0, 1 << 31)),
        ),
        answer_schema(wire.ReadOutput),
        free_text=True,
        listed="rows",
    ),
    AgentTool(
        "lint",
        "Check queries",
        "Check every query of a text against the schema, without running it.",
        "cluster_lint",
        (GRAPH, _QUERY),
        answer_schema(wire_beyond.LintOutput),
        free_text=True,
    ),
    AgentTool(
        "explain",
        "Explain a query",
        "The plan of a query: what would be done, in which order. Runs nothing.",
        "cluster_explain",
        (GRAPH, _QUERY, _NAME),
        answer_schema(wire_beyond.ExplainOutput),
        free_text=True,
    ),
    AgentTool(
        "branches_list",
        "List branches",
        "The names of all branches.",
        "cluster_listBranches",
        (GRAPH,),
        answer_schema(wire.BranchList),
        listed="branches",
    ),
    AgentTool(
        "branches_create",
        "Create a branch",
        "Make a branch to work on, from another or from any point in time. It copies nothing.",
        "cluster_createBranch",
        (
            GRAPH,
            Argument(
                "name", "Its name, such as agent/topic.", RequestPart.BODY, NAME, required=True
            ),
            Argument("from", "What it begins at; main by default.", RequestPart.BODY, NAME),
        ),
        answer_schema(wire.BranchCreateOutput),
        reads=False,
    ),
    AgentTool(
        "branches_delete",
        "Delete a branch",
        "Delete a branch. What was not merged from it is lost.",
        "cluster_deleteBranch",
        (
            GRAPH,
            Argument("name", "Which branch.", RequestPart.PATH, NAME, required=True, wire="branch"),
        ),
        answer_schema(wire.BranchDeleteOutput),
        reads=False,
        destructive=True,
    ),
    AgentTool(
        "branches_merge",
        "Merge a branch",
        "Merge a branch into another as one commit. With dry_run nothing is written: the answer "
        "has the changes and the conflicts. Conflicts come back as an error with merge_conflicts; "
        "settle each in `resolutions` and call again.",
        "cluster_mergeBranches",
        (
            GRAPH,
            Argument("source", "Branch to take from; the session's.", RequestPart.BODY, NAME),
            Argument("target", "Branch to merge into; main by default.", RequestPart.BODY, NAME),
            Argument("dry_run", "Only tell what would happen.", RequestPart.BODY, SWITCH),
            Argument("delete_branch", "Delete the source afterwards.", RequestPart.BODY, SWITCH),
            Argument(
                "by",
                "entity (the default): one changed on both sides conflicts; property: only where "
                "both changed the same property.",
                RequestPart.BODY,
                one_of("entity", "property"),
            ),
            Argument("resolutions", "A decision for each conflict.", RequestPart.BODY, _RESOLUTION),
            Argument("if_source_commit", "Only if the source is there.", RequestPart.BODY, NAME),
            Argument("if_target_commit", "Only if the target is there.", RequestPart.BODY, NAME),
            MESSAGE,
        ),
        answer_schema(wire.BranchMergeOutput),
        reads=False,
        destructive=True,
        listed="changes",
    ),
    AgentTool(
        "diff",
        "Compare two points",
        "The entities that differ between two points in time, such as main and a branch.",
        "cluster_diff",
        (
            GRAPH,
            Argument(
                "from", "The earlier point; what the branch began at.", RequestPart.QUERY, NAME
            ),
            Argument("to", "The later point; the session's branch.", RequestPart.QUERY, NAME),
            LIMIT,
            PAGE,
            *filters(),
            INCLUDE,
        ),
        answer_schema(wire_changes.DiffOutput),
        listed="changes",
    ),
    AgentTool(
        "commits_list",
        "List commits",
        "The commits of a branch, newest first: who, when, why and how many entities.",
        "cluster_listCommits",
        (
            GRAPH,
            branch(RequestPart.QUERY),
            LIMIT,
            PAGE,
            Argument("actor", "Only those of this actor.", RequestPart.QUERY, NAME),
            Argument("all_branches", "Of every branch.", RequestPart.QUERY, SWITCH),
        ),
        answer_schema(wire.CommitList),
        listed="commits",
    ),
    AgentTool(
        "commits_get",
        "Show a commit",
        "One commit.",
        "cluster_getCommit",
        (GRAPH, _COMMIT),
        answer_schema(wire.CommitOutput),
    ),
    AgentTool(
        "commits_changes",
        "Changes of a commit",
        "What one commit changed, entity by entity, before and after.",
        "cluster_getCommitChanges",
        (GRAPH, _COMMIT, LIMIT, PAGE, *filters(), INCLUDE),
        answer_schema(wire_changes.CommitChangesOutput),
        listed="changes",
    ),
    AgentTool(
        "changes_poll",
        "Follow a branch",
        "What others committed to a branch since `cursor`; without one, from `start` on.",
        "cluster_pollChanges",
        (
            GRAPH,
            branch(RequestPart.QUERY),
            Argument("cursor", "cursor of the last answer.", RequestPart.QUERY, NAME),
            Argument("start", "now, beginning or after:<commit id>.", RequestPart.QUERY, NAME),
            Argument(
                "wait_ms", "Wait so long for a commit.", RequestPart.QUERY, whole(0, WAIT_MS_MAX)
            ),
            LIMIT,
            PAGE,
            *filters(),
            INCLUDE,
        ),
        answer_schema(wire_changes.ChangeFeedOutput),
        listed="blocks",
    ),
    AgentTool(
        "mutate",
        "Run a mutation",
        "Run a query that inserts, updates or deletes, as one commit, such as `query add($n: "
        "String) { insert Person { name: $n } }`. Work on a branch, look at it with diff, then "
        "merge.",
        "cluster_mutate",
        (
            GRAPH,
            _QUERY,
            _NAME,
            _PARAMS,
            branch(RequestPart.BODY),
            Argument("if_commit", "Only if the branch is at this commit.", shape=NAME),
            MESSAGE,
        ),
        answer_schema(wire.ChangeOutput),
        reads=False,
        destructive=True,
        idempotent=False,
        free_text=True,
    ),
    AgentTool(
        "load",
        "Load records",
        'Load many records as one commit. `data` has one JSON object a line: {"type": "Person", '
        '"data": {"name": "Ada"}} or {"edge": "Knows", "from": "Ada", "to": "Bob", "data": {}}.',
        "cluster_load",
        (
            GRAPH,
            Argument("data", "The records, one a line.", RequestPart.BODY, required=True),
            Argument(
                "mode",
                "merge (the default) inserts or replaces by id; patch sets only given properties; "
                "append refuses known ids; overwrite replaces all of the types.",
                RequestPart.BODY,
                one_of("merge", "patch", "append", "overwrite"),
            ),
            branch(RequestPart.BODY),
            Argument(
                "from", "Make the branch from this one if it is missing.", RequestPart.BODY, NAME
            ),
            MESSAGE,
        ),
        answer_schema(wire.IngestOutput),
        reads=False,
        destructive=True,
        idempotent=False,
    ),
    AgentTool(
        "entity_get",
        "Show an entity",
        "One node or edge: its properties, and how many edges of each type a node has.",
        "cluster_getEntity",
        (GRAPH, *_ENTITY, branch(RequestPart.QUERY), snapshot(RequestPart.QUERY), INCLUDE),
        answer_schema(wire_entities.EntityOutput),
    ),
    AgentTool(
        "entity_history",
        "History of an entity",
        "Every commit that changed a node or edge, newest first, with before and after.",
        "cluster_getEntityHistory",
        (
            GRAPH,
            *_ENTITY,
            branch(RequestPart.QUERY),
            snapshot(RequestPart.QUERY),
            LIMIT,
            PAGE,
            INCLUDE,
        ),
        answer_schema(wire_entities.EntityHistoryOutput),
        listed="revisions",
    ),
)

PAGED = frozenset({"changes", "commits", "blocks", "revisions"})
"""Lists of which the API gives pages."""
