"""Scratch folder that the driver and all tasks of a load reach.

Invariant: the folder lies beside the graph unless the caller names another.
"""

import os
import tempfile

from omnigraph import environment
from omnigraph.errors import BadRequest
from omnigraph.storage.store import Store


def scratch_parent(store: Store, *, is_local: bool = True) -> str:
    """The folder for scratch folders, there when this returns."""
    folder = environment.SCRATCH.read()
    if folder:
        os.makedirs(folder, exist_ok=True)
        return folder
    if store.where.path is not None:
        parent = store.where.path / "__scratch"
        parent.mkdir(exist_ok=True)
        return str(parent)
    if is_local:
        return tempfile.gettempdir()
    raise BadRequest(
        "a load on a cluster needs a folder that all workers reach",
        f"set {environment.SCRATCH.name} to one",
    )
