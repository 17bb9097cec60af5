#!/bin/sh
# A walk through what OmniGraph does today. `make demo` runs it with the project's programs on the path.
set -eu
cd "$(dirname "$0")"

step() { printf '\n== %s\n' "$1"; shift; printf '$ %s\n' "$*"; "$@"; }

step "Which program this is, and which storage format it reads." \
    omnigraph version
step "The schema holds together: every name, type and constraint in it was checked." \
    omnigraph schema check schema.pg
step "Every read query is legal for that schema." \
    omnigraph lint --schema schema.pg --query queries.gq
step "So is every write." \
    omnigraph lint --schema schema.pg --query mutations.gq
step "The plan of a read: a walk of two or three steps, its direction and order already decided." \
    omnigraph explain --schema schema.pg --query queries.gq friends_of_friends
step "The plan of a write: two statements that become one commit." \
    omnigraph explain --schema schema.pg --query mutations.gq hire
step "Spark runs on this machine: a small job over the pipeline's own session." \
    python spark_job.py
