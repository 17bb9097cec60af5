"""Transaction log of a dataset: which operation wrote each version.

Invariant: a version that `commit_staged` made carries the id of the write it belongs to; a version
without one was written by Lance itself or by another program.
"""

from lance.dataset import LanceOperation

from omnigraph.storage.lance.datasets import OPERATION_PROPERTY, Datasets, Handle
from omnigraph.storage.records import TablePin


def operation_of(datasets: Datasets, handle: Handle, version: int) -> str | None:
    """The operation that wrote a version, if it was one of ours."""
    with datasets.lance_call("read_transaction", handle.uri):
        transaction = handle.read_transaction(version)
    if transaction is None:
        return None
    return (transaction.transaction_properties or {}).get(OPERATION_PROPERTY)


def is_restore(datasets: Datasets, handle: Handle, *, to: int, operation: str) -> bool:
    """Whether a handle's version is a restore of an earlier one, made for an operation of ours."""
    with datasets.lance_call("read_transaction", handle.uri):
        transaction = handle.read_transaction(handle.version)
    if transaction is None or not isinstance(transaction.operation, LanceOperation.Restore):
        return False
    owner = (transaction.transaction_properties or {}).get(OPERATION_PROPERTY)
    return owner == operation and int(transaction.operation.version) == to


def operations_since(datasets: Datasets, pin: TablePin, head: int) -> tuple[str, ...]:
    """Lance's name for what it did in each version after a pin, up to a head."""
    handle = datasets.open(pin.location, pin.branch, head)
    names = []
    for version in range(pin.version + 1, head + 1):
        with datasets.lance_call("read_transaction", handle.uri):
            names.append(_operation_name(handle, version))
    return tuple(names)


def _operation_name(handle: Handle, version: int) -> str:
    try:
        transaction = handle.read_transaction(version)
    except TypeError:
        # Lance cannot show a rewrite that moved indexes along, and fails at nothing else.
        return "Rewrite"
    if transaction is None:
        raise OSError(f"version {version} has no transaction")
    name = type(transaction.operation).__name__
    # The only operation of upkeep that Lance gives no name of its own.
    return "ReserveFragments" if name == "BaseOperation" else name
