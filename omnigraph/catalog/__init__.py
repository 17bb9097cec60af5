"""The catalog: schema types with stable identities, constraints, migrations."""
