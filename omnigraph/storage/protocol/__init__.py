"""The commit protocol: stage, sidecar, commit, publish; recovery after a crash."""
