"""Page sizes of the change feed (pagination): how many changes and commits a call gives.

Invariant: a page that nobody sized is of the size here.
"""

PAGE_CHANGES = 1_000
PAGE_CHANGES_MAX = 8_192
POLL_COMMITS = 128
POLL_COMMITS_MAX = 512
