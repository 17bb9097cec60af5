"""File names of an export folder: `node-Person.csv`, or `nodes/Person/part-00000.parquet`.

Invariant: a name that an export gives to the files of a type is read back as that type, so a folder
of columns, which do not say their type themselves, loads as a whole.
"""

import re
from pathlib import PurePosixPath

from omnigraph.catalog.model import Catalog
from omnigraph.catalog.near_names import did_you_mean
from omnigraph.errors import BadRequest
from omnigraph.exec.load.ndjson import Owner
from omnigraph.types import TABLE_KINDS, Kind

_FILE = re.compile(r"(node|edge)-(\w+)")
_FOLDERS = {f"{kind}s": kind for kind in TABLE_KINDS}


def type_file(owner: Owner, ending: str) -> str:
    """The name of the one file that has the rows of a type."""
    return f"{owner.kind}-{owner.name}.{ending}"


def type_folder(owner: Owner) -> str:
    """The folder of a type whose rows are in several files."""
    return f"{owner.kind}s/{owner.name}"


def named_type(catalog: Catalog, file: str) -> Owner | None:
    """The type that the name of a file of columns says; None for any other name, `BadRequest` where
    the schema has no such type."""
    named = _kind_and_name(PurePosixPath(file))
    if named is None:
        return None
    kind, name = named
    owner: Owner | None = catalog.node(name) if kind is Kind.NODE else catalog.edge(name)
    if owner is None:
        known = catalog.nodes if kind is Kind.NODE else catalog.edges
        raise BadRequest(
            f"{file} is named after the {kind} type '{name}', which the schema does not have",
            f"{did_you_mean(name, known)} Rename the file, or name the type of its rows",
        )
    return owner


def _kind_and_name(path: PurePosixPath) -> tuple[Kind, str] | None:
    match = _FILE.fullmatch(path.name.partition(".")[0])
    if match is not None:
        return Kind(match[1]), match[2]
    kind = _FOLDERS.get(path.parent.parent.name)
    return None if kind is None or not path.parent.name else (kind, path.parent.name)
