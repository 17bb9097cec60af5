#!/bin/sh
# A short walk through what OmniGraph does, with `omnigraph` on the path. The graph it
# makes stays in the folder it names at the end; give another as the first argument.
set -eu
cd "$(dirname "$0")"
graph="${1:-$(mktemp -d)/people.omni}"

step() { printf '\n== %s\n' "$1"; shift; printf '$ %s\n' "$*"; "$@"; }

step "Which program this is, and which storage format it reads." \
    omnigraph version
step "The schema holds together: every name, type and constraint in it was checked." \
    omnigraph schema check schema.pg
step "Every query and every mutation is legal for that schema." \
    omnigraph lint --schema schema.pg --query queries.gq
step "The plan of a read: a walk of two or three steps, its direction and order already decided." \
    omnigraph explain --schema schema.pg --query queries.gq friends_of_friends
step "A graph is made: one empty table a type, and a first commit." \
    omnigraph init --schema schema.pg "$graph"
step "People, companies, documents and their edges come in as one commit." \
    omnigraph load "$graph" --data people.jsonl --mode merge
step "Who works with Ada?" \
    omnigraph query colleagues --query queries.gq --params '{"name":"Ada"}' --store "$graph"
step "Documents about learning, best match first." \
    omnigraph query find_docs --query queries.gq --params '{"words":"learning"}' --store "$graph"
step "A branch to work on. It copies nothing." \
    omnigraph branch create review/hire "$graph"
step "Someone is hired there: two statements, one commit, by one actor." \
    omnigraph mutate hire --query mutations.gq --branch review/hire --as act-demo --store "$graph" \
    --params '{"name":"Dee","age":41,"company":"Zeta","title":"Engineer"}'
step "Main has not seen it." \
    omnigraph query headcount --query queries.gq --store "$graph"
step "The merge makes it visible at once, and the branch is dropped." \
    omnigraph branch merge review/hire --into main --delete-branch "$graph"
step "Now it has." \
    omnigraph query headcount --query queries.gq --store "$graph"
step "Every commit can be read again: the history, newest first." \
    omnigraph commit list "$graph"
step "Spark runs on this machine: a small job over the pipeline's own session." \
    python spark_job.py
printf '\nThe graph is in %s. Try: omnigraph query -e '\''query all() { match { $p: Person } return { $p.name } }'\'' %s\n' \
    "$graph" "$graph"
