"""Environment variables: one table of every variable that is read, with its default and bounds.

Invariant: no other module reads or changes the environment of the process. A value that cannot be
used is refused by the name of its variable, never guessed at; an empty one counts as unset.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from omnigraph.costs import COSTS, THRESHOLDS, VARIABLE
from omnigraph.errors import BadRequest
from omnigraph.light_dataclass import dataclass

_PREFIX = "OMNIGRAPH_"
_INTEGER_MAX = (1 << 63) - 1
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class NumberVariable:
    """A whole number within bounds."""

    name: str
    default: int
    use: str
    least: int = 0
    most: int = _INTEGER_MAX
    threshold: str | None = None

    def read(self, env: Mapping[str, str] | None = None) -> int:
        """Return the value, or the default; a threshold that tests have lowered is the default."""
        text = _stripped(self.name, env)
        if not text:
            return self.default if self.threshold is None else int(getattr(COSTS, self.threshold))
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_INTEGER_MAX))
        if not is_number or not self.least <= int(text) <= self.most:
            raise _unusable(self.name, text, f"set it to a whole number {self.allowed}")
        return int(text)

    @property
    def allowed(self) -> str:
        """The bounds in words."""
        upper = "on" if self.most == _INTEGER_MAX else f"to {self.most}"
        return f"from {self.least} {upper}"


@dataclass(frozen=True, slots=True)
class ChoiceVariable:
    """One of a few words."""

    name: str
    default: str
    use: str
    words: tuple[str, ...]

    def read(self, env: Mapping[str, str] | None = None) -> str:
        """The word, or the default."""
        return _chosen(self, env) or self.default

    @property
    def allowed(self) -> str:
        """The words."""
        return ", ".join(self.words)


@dataclass(frozen=True, slots=True)
class OptionalChoiceVariable:
    """One of a few words, or none."""

    name: str
    use: str
    words: tuple[str, ...]
    default = ""

    def read(self, env: Mapping[str, str] | None = None) -> str | None:
        """Return the word; None if the variable is not set."""
        return _chosen(self, env)

    @property
    def allowed(self) -> str:
        """The words."""
        return ", ".join(self.words)


def _chosen(
    variable: ChoiceVariable | OptionalChoiceVariable, env: Mapping[str, str] | None
) -> str | None:
    text = _stripped(variable.name, env)
    if text and text not in variable.words:
        raise _unusable(variable.name, text, f"use {variable.allowed}")
    return text or None


@dataclass(frozen=True, slots=True)
class FlagVariable:
    """On or off; off by default."""

    name: str
    use: str

    def read(self, env: Mapping[str, str] | None = None) -> bool:
        """Whether it is on."""
        text = _stripped(self.name, env).lower()
        if text in _TRUE:
            return True
        if text and text not in _FALSE:
            raise _unusable(self.name, text, f"use {self.allowed}")
        return False

    @property
    def default(self) -> str:
        """Off, in words."""
        return "off"

    @property
    def allowed(self) -> str:
        """The words that turn it on and off."""
        return "1, true, yes, on, or 0, false, no, off"


@dataclass(frozen=True, slots=True)
class TextVariable:
    """Any text: a name, an address or a folder."""

    name: str
    use: str
    is_secret: bool = False
    default = ""
    allowed = ""

    def read(self, env: Mapping[str, str] | None = None) -> str | None:
        """The text as it is, if there is one."""
        return _given(self.name, env) or None


def _threshold_variable(name: str, threshold: str, use: str) -> NumberVariable:
    """Declare a setting of users that is a threshold, too."""
    return NumberVariable(name, int(THRESHOLDS[threshold].value), use, threshold=threshold)


Variable = NumberVariable | ChoiceVariable | OptionalChoiceVariable | FlagVariable | TextVariable


# Settings.
HOME = TextVariable(
    "OMNIGRAPH_HOME", "folder of config.yaml and the shell's history, else ~/.omnigraph"
)
PROFILE = TextVariable("OMNIGRAPH_PROFILE", "profile of config.yaml that names the graph")

# A client of a server.
BEARER_TOKEN = TextVariable(
    "OMNIGRAPH_BEARER_TOKEN", "token for servers that config.yaml does not name", is_secret=True
)
SERVER_TOKEN_PREFIX = "OMNIGRAPH_TOKEN_"

# The server.
CLUSTER = TextVariable(
    "OMNIGRAPH_CLUSTER", "cluster that the server serves where its command names no graph"
)
BIND = TextVariable("OMNIGRAPH_BIND", "host:port that the server listens on")
LISTEN_ADDR = TextVariable("OMNIGRAPH_LISTEN_ADDR", "older name of OMNIGRAPH_BIND")
SERVER_TOKEN = TextVariable(
    "OMNIGRAPH_SERVER_BEARER_TOKEN", "token of the actor `default`", is_secret=True
)
SERVER_TOKENS = TextVariable(
    "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON", "JSON object of actors and their tokens", is_secret=True
)
SERVER_TOKENS_FILE = TextVariable(
    "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE", "file with such an object, which wins"
)
SERVER_TOKENS_AWS = TextVariable(
    "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET", "not read: a server does not start with it"
)
UNAUTHENTICATED = FlagVariable("OMNIGRAPH_UNAUTHENTICATED", "the server asks nobody who they are")
REQUIRE_ALL_GRAPHS = FlagVariable(
    "OMNIGRAPH_REQUIRE_ALL_GRAPHS", "the server starts only if every graph opens"
)
ACTOR_INFLIGHT = NumberVariable(
    "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX", 16, "writes of one actor at once in a worker", least=1
)
ACTOR_BYTES = NumberVariable(
    "OMNIGRAPH_PER_ACTOR_BYTES_MAX", 4 << 30, "bytes of those writes together", least=1
)

# Bounds of a read.
QUERY_MEMORY = NumberVariable(
    "OMNIGRAPH_QUERY_MEMORY_BYTES_MAX", 4 << 30, "bytes that one query may hold in memory"
)
QUERY_TIME = NumberVariable(
    "OMNIGRAPH_QUERY_TIME_MS_MAX", 60_000, "milliseconds that one query may take", most=10**12
)
CACHE = NumberVariable("OMNIGRAPH_CACHE_BYTES_MAX", 2 << 30, "bytes kept in memory between queries")
TRAVERSAL = ChoiceVariable(
    "OMNIGRAPH_TRAVERSAL_MODE",
    "auto",
    "how edges are read, never which",
    ("auto", "indexed", "csr"),
)
FRONTIER = _threshold_variable(
    "OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER",
    "frontier_rows_max",
    "sources that are looked up one by one",
)
TOPOLOGY_ROWS = _threshold_variable(
    "OMNIGRAPH_TOPOLOGY_ROWS_MIN",
    "topology_rows_min",
    "rows from which a table gets topology files",
)
INDEX_ROWS = _threshold_variable(
    "OMNIGRAPH_INDEX_ROWS_MIN",
    "index_rows_min",
    "rows without an index from which a load builds it",
)
TOPOLOGY_CACHE = NumberVariable(
    "OMNIGRAPH_TOPOLOGY_CACHE_BYTES_MAX",
    8 << 30,
    "bytes of topology files of object stores that are copied to this machine",
)
METADATA_CACHE = NumberVariable(
    "OMNIGRAPH_METADATA_CACHE_BYTES_MAX",
    256 << 20,
    "bytes of versions and fragments of tables that are kept for each open graph",
)

# Writes.
WRITE_RETRIES = NumberVariable(
    "OMNIGRAPH_WRITE_RETRIES",
    0,
    "how often an update or delete is prepared again when another writer came first",
    most=1000,
)

DURABILITY = ChoiceVariable(
    "OMNIGRAPH_DURABILITY",
    "",
    "whether a commit is flushed to disk before it is acknowledged, else the graph's own",
    ("fsync", "os"),
)

# Bulk work.
LOAD_CONCURRENCY = NumberVariable(
    "OMNIGRAPH_LOAD_CONCURRENCY",
    8,
    "files that a load in one process writes at once; no more than it has cores, or 2",
    least=1,
    most=1024,
)
MAINTENANCE_CONCURRENCY = NumberVariable(
    "OMNIGRAPH_MAINTENANCE_CONCURRENCY",
    8,
    "tasks of optimize and cleanup at once in one process",
    least=1,
    most=1024,
)
LOCAL_BYTES = NumberVariable(
    "OMNIGRAPH_LOCAL_BYTES_MAX", 64 << 20, "bytes of input up to which a load does without Spark"
)
SCRATCH = TextVariable("OMNIGRAPH_SCRATCH", "folder for scratch files, on each machine its own")
EXCHANGE = ChoiceVariable(
    "OMNIGRAPH_EXCHANGE",
    "auto",
    "how tasks of a load on Spark exchange keys; auto takes the folder on one machine only",
    ("auto", "folder", "shuffle"),
)
CLASS_ARCHIVE = ChoiceVariable(
    "OMNIGRAPH_CLASS_ARCHIVE",
    "on",
    "whether Spark starts from an archive of its classes",
    ("on", "off"),
)

# Embeddings.
EMBED_PROVIDER = OptionalChoiceVariable(
    "OMNIGRAPH_EMBED_PROVIDER",
    "service that makes vectors, none unless set; mock works offline",
    ("openai-compatible", "openai", "gemini", "mock"),
)
EMBED_MODEL = TextVariable("OMNIGRAPH_EMBED_MODEL", "its model, else the service's default")
EMBED_BASE_URL = TextVariable("OMNIGRAPH_EMBED_BASE_URL", "its address, else the service's own")
EMBED_TIMEOUT = NumberVariable(
    "OMNIGRAPH_EMBED_TIMEOUT_MS", 30_000, "milliseconds for one request", least=1, most=10**12
)
EMBED_DEADLINE = NumberVariable(
    "OMNIGRAPH_EMBED_DEADLINE_MS", 60_000, "milliseconds with all retries; 0 is no end", most=10**12
)
EMBED_ATTEMPTS = NumberVariable(
    "OMNIGRAPH_EMBED_RETRY_ATTEMPTS", 4, "attempts of one request", least=1, most=1024
)
EMBED_BACKOFF = NumberVariable(
    "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS",
    200,
    "milliseconds before the second attempt; doubled for each further one",
    most=10**9,
)
EMBED_MOCK = FlagVariable("OMNIGRAPH_EMBEDDINGS_MOCK", "the provider mock, whatever is configured")
OPENROUTER_KEY = TextVariable("OPENROUTER_API_KEY", "key of openai-compatible", is_secret=True)
OPENAI_KEY = TextVariable("OPENAI_API_KEY", "key of openai", is_secret=True)
GEMINI_KEY = TextVariable("GEMINI_API_KEY", "key of gemini", is_secret=True)

# Object stores. Lance reads these by itself; here they are read for files of loads and exports.
AWS = {
    variable.name: variable
    for variable in (
        TextVariable("AWS_ACCESS_KEY_ID", "access to S3", is_secret=True),
        TextVariable("AWS_SECRET_ACCESS_KEY", "access to S3", is_secret=True),
        TextVariable("AWS_SESSION_TOKEN", "access to S3", is_secret=True),
        TextVariable("AWS_REGION", "region of S3"),
        TextVariable("AWS_DEFAULT_REGION", "region of S3 if AWS_REGION is unset"),
        TextVariable("AWS_ENDPOINT", "address of another store that speaks S3"),
        TextVariable("AWS_ENDPOINT_URL", "the same if AWS_ENDPOINT is unset"),
    )
}

# Java and Spark.
JAVA_HOME = TextVariable("JAVA_HOME", "Java that runs Spark, else the one on the path")
PYSPARK_PYTHON = TextVariable("PYSPARK_PYTHON", "Python of Spark's workers, else this one")
GATEWAY_PORT = TextVariable("PYSPARK_GATEWAY_PORT", "set by spark-submit: its JVM is used")

# The machine.
PATH = TextVariable("PATH", "where java is looked for")
CACHE_HOME = TextVariable("XDG_CACHE_HOME", "folder of cached files, else ~/.cache")
USER_HOME = TextVariable("HOME", "folder of the user")
NO_COLOR = TextVariable("NO_COLOR", "anything: no colours")
TERM = TextVariable("TERM", "dumb: no colours")

# Ours, for tests and shells.
FAILPOINTS = TextVariable("OMNIGRAPH_FAILPOINTS", "for tests: where the program stops, `name=kill`")
TEST_THRESHOLDS = TextVariable(
    VARIABLE, "for tests: thresholds as a JSON object, read by omnigraph.costs"
)
COMPLETE = TextVariable("_OMNIGRAPH_COMPLETE", "set by a shell that completes a command")
COMPLETE_WORDS = TextVariable("COMP_WORDS", "set by bash: the words of the command so far")
COMPLETE_ARGUMENTS = TextVariable("_TYPER_COMPLETE_ARGS", "set by zsh and fish: the same")

TABLE: tuple[Variable, ...] = (
    HOME, PROFILE, BEARER_TOKEN,
    CLUSTER, BIND, LISTEN_ADDR, SERVER_TOKEN, SERVER_TOKENS, SERVER_TOKENS_FILE, SERVER_TOKENS_AWS,
    UNAUTHENTICATED, REQUIRE_ALL_GRAPHS, ACTOR_INFLIGHT, ACTOR_BYTES,
    QUERY_MEMORY, QUERY_TIME, CACHE, TRAVERSAL, FRONTIER, TOPOLOGY_ROWS,
    INDEX_ROWS, TOPOLOGY_CACHE, METADATA_CACHE,
    WRITE_RETRIES, DURABILITY,
    LOAD_CONCURRENCY, MAINTENANCE_CONCURRENCY, LOCAL_BYTES, SCRATCH, EXCHANGE,
    CLASS_ARCHIVE,
    EMBED_PROVIDER, EMBED_MODEL, EMBED_BASE_URL, EMBED_TIMEOUT, EMBED_DEADLINE, EMBED_ATTEMPTS,
    EMBED_BACKOFF, EMBED_MOCK, OPENROUTER_KEY, OPENAI_KEY, GEMINI_KEY,
    *AWS.values(),
    JAVA_HOME, PYSPARK_PYTHON, GATEWAY_PORT,
    PATH, CACHE_HOME, USER_HOME, NO_COLOR, TERM,
    FAILPOINTS, TEST_THRESHOLDS, COMPLETE, COMPLETE_WORDS, COMPLETE_ARGUMENTS,
)  # fmt: skip
"""Every variable, in the order in which they are listed."""


def current() -> Mapping[str, str]:
    """The environment of this process, for a process that it starts."""
    return os.environ


def unknown(env: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Variables that are set and look like ours, but that nothing reads: misspelt, most likely."""
    names = {variable.name for variable in TABLE}
    given = os.environ if env is None else env
    ours = (name for name in given if name.startswith(_PREFIX) and name not in names)
    return tuple(sorted(name for name in ours if not name.startswith(SERVER_TOKEN_PREFIX)))


def server_token(server: str) -> TextVariable:
    """The variable that has the token of a server of config.yaml."""
    name = server.upper().replace("-", "_")
    return TextVariable(SERVER_TOKEN_PREFIX + name, f"token of the server {server}", is_secret=True)


@contextmanager
def borrowed(variables: Mapping[str, str]) -> Iterator[None]:
    """Add variables to the environment that a process started meanwhile inherits."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _given(name: str, env: Mapping[str, str] | None) -> str:
    return (os.environ if env is None else env).get(name) or ""


def _stripped(name: str, env: Mapping[str, str] | None) -> str:
    return _given(name, env).strip()


def _unusable(name: str, text: str, hint: str) -> BadRequest:
    shown = text if len(text) <= 60 else f"{text[:59]}…"
    return BadRequest(f"{name} is '{shown}'", f"{hint}, or unset it")
