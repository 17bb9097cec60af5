"""Policy file of a bundle: whether it can be used for the scopes it is bound to.

Invariant: a fault is one line for a person; None is a file that a server can enforce.
"""

from omnigraph.errors import PolicyInvalid
from omnigraph.policy import PolicyKind, parse_policy


def policy_fault(content: bytes, kind: str) -> str | None:
    """Why a policy cannot be bound to graphs (`graph`) or to the cluster (`server`), or None."""
    try:
        parse_policy(content.decode(), "policy", PolicyKind(kind))
    except UnicodeDecodeError:
        return "it is not UTF-8"
    except PolicyInvalid as cause:
        return " ".join(str(cause).split())
    return None
