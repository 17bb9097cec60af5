#!/bin/sh
# A knowledge graph of a small company, from records to answers. Vectors come from a provider that works offline
# and knows no meaning; set OMNIGRAPH_EMBED_PROVIDER and its key for real ones. The graph is left where the first
# argument says.
set -eu
cd "$(dirname "$0")"
work="${1:-$(mktemp -d)}"
export OMNIGRAPH_EMBED_PROVIDER="${OMNIGRAPH_EMBED_PROVIDER:-mock}"
graph="$work/company.omni"

step() { printf '\n== %s\n' "$1"; shift; "$@"; }

step "Vectors for the documents, into a file of their own." \
    omnigraph embed --input company.jsonl --output "$work/embedded.jsonl" --spec spec.json
step "The graph." \
    omnigraph init --schema schema.pg "$graph"
step "Everything, as one commit." \
    omnigraph load "$graph" --data "$work/embedded.jsonl" --mode merge --as act-import
step "What is written about search?" \
    omnigraph query find --query queries.gq --params '{"words": "search index"}' --store "$graph"
step "By meaning and by words together." \
    omnigraph query similar --query queries.gq --params '{"words": "ranking", "since": "2025-06-01"}' --store "$graph"
step "Who knows about it?" \
    omnigraph query experts --query queries.gq --params '{"words": "search index"}' --store "$graph"
step "What does the second document rest on?" \
    omnigraph query trail --query queries.gq --params '{"slug": "d2"}' --store "$graph"
step "Which running project has nothing written about it?" \
    omnigraph query undocumented --query queries.gq --store "$graph"
printf '\nThe graph is in %s. Try: omnigraph shell %s\n' "$graph" "$graph"
