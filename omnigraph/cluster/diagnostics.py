"""Diagnostics of a cluster: codes, severities, and the list that a command fills.

Invariant: every code is listed here with its usual severity. A command is ok exactly when its list
holds no error.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from omnigraph.errors import BadRequest

ERROR, WARNING = "error", "warning"


def _codes(listed: str) -> tuple[str, ...]:
    return tuple(listed.split())


CONFIG_CODES = _codes(
    """config_dir_not_found cluster_config_read_error invalid_cluster_yaml duplicate_yaml_key
    unsupported_cluster_config_version empty_metadata_name unsupported_state_backend
    invalid_storage_root invalid_resource_id future_phase_field removed_streaming_declaration
    schema_file_missing schema_parse_error schema_catalog_error query_dir_unreadable
    query_dir_empty query_file_missing query_parse_error duplicate_query_name query_key_mismatch
    query_typecheck_error query_typecheck_skipped policy_missing_applies_to
    policy_mixed_binding_kinds duplicate_policy_binding policy_invalid policy_file_missing
    dangling_graph_reference wrong_kind_reference dangling_embedding_provider_reference
    invalid_embedding_provider embedding_api_key_inline embedding_api_key_required
    invalid_external_blob_base invalid_external_blob_policy"""
)
STATE_CODES = _codes(
    """state_missing state_already_exists state_read_error invalid_state_json
    unsupported_state_version state_write_error state_cas_mismatch state_lock_held
    state_lock_missing state_lock_id_mismatch invalid_state_lock unsupported_state_lock_version
    state_lock_read_error state_lock_error state_lock_disabled"""
)
APPLY_CODES = _codes(
    """schema_preview_unavailable schema_apply_failed graph_create_failed graph_delete_failed
    apply_unsupported_change apply_dependency_blocked approval_required approval_stale
    approval_not_required resource_payload_write_error resource_content_changed
    cluster_recovery_pending cluster_recovery_rolled_forward cluster_recovery_unattributed
    graph_create_incomplete graph_delete_incomplete actual_applied_state_pending
    invalid_recovery_sidecar unsupported_recovery_sidecar_version"""
)
OBSERVATION_CODES = _codes(
    """graph_missing schema_mismatch graph_observation_error catalog_payload_missing
    catalog_payload_mismatch catalog_payload_read_error"""
)
SERVING_CODES = _codes(
    """cluster_state_missing cluster_empty cluster_no_healthy_graphs policy_bindings_missing
    catalog_payload_digest_mismatch embedding_provider_missing embedding_provider_profile_missing
    embedding_provider_digest_mismatch external_blob_policy_digest_mismatch
    graph_not_applied"""
)
OWN_CODES = ("vector_parameter", "actor_required", "invalid_approval")
"""Codes beside those of 0.10."""

CODES = frozenset(
    {*CONFIG_CODES, *STATE_CODES, *APPLY_CODES, *OBSERVATION_CODES, *SERVING_CODES, *OWN_CODES}
)
WARNINGS = frozenset(
    _codes(
        """query_dir_empty query_typecheck_skipped state_lock_disabled schema_preview_unavailable
    apply_unsupported_change apply_dependency_blocked approval_stale graph_delete_incomplete
    vector_parameter"""
    )
)


@dataclass(frozen=True, slots=True)
class ClusterDiagnostic:
    """One finding: what, how bad, where and why."""

    code: str
    severity: str
    path: str
    message: str

    def to_json(self) -> dict[str, str]:
        return {
            "code": self.code,
            "severity": self.severity,
            "path": self.path,
            "message": self.message,
        }

    def __str__(self) -> str:
        label = "ERROR" if self.severity == ERROR else "WARN "
        return f"{label} {self.code} {self.path}: {self.message}"


@dataclass(slots=True)
class Diagnostics:
    """The findings of one command, in the order they were made."""

    entries: list[ClusterDiagnostic] = field(default_factory=list)

    def add(self, code: str, path: str, message: str, *, severity: str | None = None) -> None:
        """Note a finding, with the usual severity of its code unless another one is given."""
        if code not in CODES:
            raise ValueError(f"no diagnostic has the code {code}")
        usual = WARNING if code in WARNINGS else ERROR
        self.entries.append(ClusterDiagnostic(code, severity or usual, path, message))

    def warn(self, code: str, path: str, message: str) -> None:
        """Note a finding that stops nothing."""
        self.add(code, path, message, severity=WARNING)

    @property
    def ok(self) -> bool:
        return not any(each.severity == ERROR for each in self.entries)

    def __iter__(self) -> Iterator[ClusterDiagnostic]:
        return iter(self.entries)

    def to_json(self) -> list[dict[str, str]]:
        return [each.to_json() for each in self.entries]


class ClusterRefusal(Exception):
    """A finding that ends a command where it stands."""

    def __init__(self, code: str, path: str, message: str) -> None:
        super().__init__(message)
        self.code, self.path, self.message = code, path, message

    def as_error(self) -> BadRequest:
        """The same for a caller who has no list of findings."""
        return BadRequest(f"{self.code} {self.path}: {self.message}")
