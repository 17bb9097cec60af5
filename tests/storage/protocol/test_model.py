"""Random histories with crashes, compared with a model: dictionaries that branch by copying."""

import copy
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from omnigraph.errors import InUse, OmnigraphError
from omnigraph.storage import failpoints
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import WriterKind
from tests.storage.world import TABLES, Content, Where, content, heads_agree, remove, rows

IDS = st.sampled_from("abcdef")
VALUES = st.dictionaries(IDS, st.integers(0, 99), min_size=1, max_size=3)
WRITES = st.dictionaries(st.sampled_from(TABLES), VALUES, min_size=1, max_size=3)
PLACES = st.sampled_from([p for p in failpoints.COMMIT + failpoints.FORK + failpoints.RECOVER])
NAMES = ("b", "b/c", "d")


class Histories(RuleBasedStateMachine):
    """One graph, some branches, writers that may stop anywhere."""

    @initialize()
    def create(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.where = Where(str(Path(self.folder) / "graph"))
        self.store = self.where.create()
        self.model: dict[str, Content] = {MAIN: {key: {} for key in TABLES}}
        self.commits: dict[str, Content] = {}

    def teardown(self) -> None:
        failpoints.disarm()
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    @rule(data=st.data(), values=WRITES)
    def upsert(self, data: st.DataObject, values: Content) -> None:
        branch = data.draw(st.sampled_from(sorted(self.model)))
        after = self._upserted(branch, values)
        write = self.store.begin(branch, kind=WriterKind.MUTATION)
        for key, each in values.items():
            write.upsert(key, rows(key, each))
        self.commits[self.store.commit(write).id] = copy.deepcopy(after)
        self.model[branch] = after

    @rule(data=st.data(), key=st.sampled_from(TABLES), name=IDS)
    def delete(self, data: st.DataObject, key: str, name: str) -> None:
        branch = data.draw(st.sampled_from(sorted(self.model)))
        write = self.store.begin(branch, kind=WriterKind.MUTATION)
        found = remove(self.store, write, key, f"id = '{name}'")  # type: ignore[arg-type]
        assert found == (name in self.model[branch][key])  # type: ignore[index]
        if found:
            self.store.commit(write)
            del self.model[branch][key][name]  # type: ignore[index]

    @rule(data=st.data(), values=WRITES, place=PLACES, nth=st.integers(1, 3))
    def stop(self, data: st.DataObject, values: Content, place: str, nth: int) -> None:
        """A write that may stop anywhere, and a look at which side of it the graph is on."""
        branch = data.draw(st.sampled_from(sorted(self.model)))
        before, after = self.model[branch], self._upserted(branch, values)
        with failpoints.armed(place, nth=nth):
            try:
                write = self.store.begin(branch, kind=WriterKind.MUTATION)
                for key, each in values.items():
                    write.upsert(key, rows(key, each))
                self.store.commit(write)
            except (OmnigraphError, OSError):
                pass
            else:
                before = after
        if data.draw(st.booleans()):
            self.store = self.where.open()
        else:
            self.store.heal()
        seen = content(self.store, branch)
        assert seen in (before, after)
        self.model[branch] = seen

    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def branch(self, data: st.DataObject, name: str) -> None:
        source = data.draw(st.sampled_from(sorted(self.model)))
        if name in self.model:
            return
        self.store.branches.create(name, source=source)
        self.model[name] = copy.deepcopy(self.model[source])

    @precondition(lambda self: len(self.model) > 1)
    @rule(data=st.data())
    def unbranch(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(set(self.model) - {MAIN})))
        try:
            self.store.branches.delete(name)
        except InUse:
            return
        del self.model[name]
        live = {c.id for b in self.model for c in self.store.history.list(b)}
        self.commits = {id: seen for id, seen in self.commits.items() if id in live}

    @rule()
    def reopen(self) -> None:
        self.store = self.where.open()

    @precondition(lambda self: self.commits)
    @rule(data=st.data())
    def travel(self, data: st.DataObject) -> None:
        commit = data.draw(st.sampled_from(sorted(self.commits)))
        assert content(self.store, commit=commit) == self.commits[commit]

    @invariant()
    def every_branch_is_as_the_model_says(self) -> None:
        assert self.store.branches.list() == tuple(sorted(self.model))
        for branch, expected in self.model.items():
            assert content(self.store, branch) == expected
            assert heads_agree(self.store, branch)
        assert self.store.sidecars.pending() == ()

    def _upserted(self, branch: str, values: Content) -> Content:
        after = copy.deepcopy(self.model[branch])
        for key, each in values.items():
            after[key] |= each
        return after


Histories.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestHistories = Histories.TestCase
