"""OmniGraph in Spark: the session, the data source, and writes of streams.

    from omnigraph import spark as ogs
    spark = ogs.session()
    spark.read.format("omnigraph").option("type", "Person").load("graph.omni")

Importing this module does not import pyspark; using one of its names does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from omnigraph.extras import require_spark

if TYPE_CHECKING:
    from omnigraph.pipeline.session import register, session
    from omnigraph.pipeline.source import OmnigraphSource
    from omnigraph.pipeline.streams import foreach_batch

__all__ = ["OmnigraphSource", "foreach_batch", "register", "session"]

_HOMES = {
    "OmnigraphSource": "source",
    "foreach_batch": "streams",
    "register": "session",
    "session": "session",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'omnigraph.spark' has no attribute '{name}'")
    if home != "session":  # its functions ask when they are called
        require_spark()
    return getattr(import_module(f"omnigraph.pipeline.{home}"), name)
