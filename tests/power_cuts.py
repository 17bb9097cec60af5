"""Power cuts as a model: the file operations of a run, and the states a disk may have after a cut.

Two recorders give the same operations. `Watching` works everywhere: it compares the folder before
each flush and at each failpoint with what it was before, inside the process. `traced` reads what
`strace` saw of a process, so every single operation is there.

A state keeps what was flushed: the content of a file up to its last fsync, and the names in a
folder up to the folder's last fsync. Of everything else each operation may be missing, names may be
on disk without their content, and content may be cut off or zeros. A rename is one operation.
"""

import os
import random
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from omnigraph.storage import failpoints, flushing

SECTOR = 512


@dataclass(frozen=True)
class Op:
    """One operation. `kind` is make, data, link, move, unlink, mkdir, rmdir, fsync or ack."""

    kind: str
    path: str = ""
    to: str = ""
    data: bytes = b""
    inode: int = 0


@dataclass
class Inode:
    """A file: what it holds, and what of it is on disk for sure."""

    data: bytes = b""
    flushed: bytes | None = None


@dataclass
class Entry:
    """One change of names, and whether its folders were flushed since."""

    op: Op
    folders: set[str]
    inode: int = 0


@dataclass
class Disk:
    """A disk that sees operations and may be cut off."""

    inodes: dict[int, Inode] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    acks: int = 0
    made: int = 0

    def apply(self, op: Op) -> None:
        if op.kind == "make":
            self.made += 1
            self.inodes[self.made] = Inode()
            self.names[op.path] = self.made
            self._enter(op, self.made)
        elif op.kind == "data":
            node = self.inodes.get(self.names.get(op.path, 0))
            if node is not None:
                node.data = op.data
        elif op.kind == "link":
            if op.path in self.names:
                self.names[op.to] = self.names[op.path]
                self._enter(op, self.names[op.to])
        elif op.kind == "move":
            if op.path in self.names:
                self.names[op.to] = self.names.pop(op.path)
                self._enter(op, self.names[op.to])
        elif op.kind == "unlink":
            if self.names.pop(op.path, None) is not None:
                self._enter(op)
        elif op.kind in ("mkdir", "rmdir"):
            self._enter(op)
        elif op.kind == "fsync":
            self._flush(op.path)
        else:
            self.acks += 1

    def _enter(self, op: Op, inode: int = 0) -> None:
        # A rename is one operation: a flush of the folder it leads to makes all of it durable.
        self.entries.append(Entry(op, {_folder(op.to or op.path)}, inode))

    def _flush(self, path: str) -> None:
        if path in self.names:
            node = self.inodes[self.names[path]]
            node.flushed = node.data
        for entry in self.entries:
            entry.folders.discard(path)

    def cut(self, chance: random.Random) -> tuple[dict[str, bytes], set[str]]:
        """Files and folders that a power cut may leave."""
        loss = chance.choice((0.0, 0.1, 0.5, 1.0))
        in_order = chance.random() < 0.5
        unsure = [n for n, entry in enumerate(self.entries) if entry.folders]
        last = chance.choice([*unsure, len(self.entries)]) if in_order else 0
        names: dict[str, int] = {}
        folders: set[str] = set()
        stopped: set[str] = set()  # paths of which an operation is lost, and so those after it
        for number, entry in enumerate(self.entries):
            op = entry.op
            lost = number >= last if in_order else chance.random() < loss
            touched = {op.path, op.to} - {""}
            if entry.folders and (lost or touched & stopped):
                stopped |= touched
                continue
            if op.kind in ("make", "link"):
                names[op.to or op.path] = entry.inode
            elif op.kind == "move":
                names.pop(op.path, None)
                names[op.to] = entry.inode
            elif op.kind == "unlink":
                names.pop(op.path, None)
            elif op.kind == "mkdir":
                folders.add(op.path)
            else:
                folders.discard(op.path)
        contents = {number: _content(node, chance, loss) for number, node in self.inodes.items()}
        reachable = {f for f in folders if all(a in folders for a in _above(f))} | {""}
        files = {p: contents[i] for p, i in names.items() if _folder(p) in reachable}
        return files, reachable - {""}


def _content(node: Inode, chance: random.Random, loss: float) -> bytes:
    if node.flushed == node.data or chance.random() >= loss:
        return node.data
    return chance.choice(
        (
            node.flushed or b"",
            bytes(len(node.data)),
            node.data[: chance.randrange(0, len(node.data) + 1, SECTOR)],
            _with_a_lost_sector(node.data, chance),
        )
    )


def _with_a_lost_sector(data: bytes, chance: random.Random) -> bytes:
    if not data:
        return data
    start = chance.randrange(0, len(data), SECTOR)
    return data[:start] + bytes(len(data[start : start + SECTOR])) + data[start + SECTOR :]


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _above(path: str) -> Iterator[str]:
    while path := _folder(path):
        yield path


def states(
    ops: list[Op], count: int, chance: random.Random
) -> Iterator[tuple[int, dict[str, bytes], set[str]]]:
    """So many states after cuts at random moments: how many steps were acknowledged, the files and
    the folders."""
    moments = Counter(chance.randrange(1, len(ops) + 1) for _ in range(count))
    disk = Disk()
    for number, op in enumerate(ops, 1):
        disk.apply(op)
        for _ in range(moments[number]):
            yield disk.acks, *disk.cut(chance)


def lay_out(root: Path, files: dict[str, bytes], folders: set[str]) -> None:
    """Make a folder hold exactly this state."""
    for folder in sorted(folders):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for path, data in files.items():
        (root / path).write_bytes(data)


# Recording inside the process


class Watching:
    """Records what happens below a folder by comparing it with what it was."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.ops: list[Op] = []
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._folders: set[str] = set()
        self._turn = threading.Lock()

    def look(self) -> None:
        """Note what changed since the last look."""
        with self._turn:
            self._look()

    def ack(self) -> None:
        """Note that a step was acknowledged."""
        with self._turn:
            self._look()
            self.ops.append(Op("ack"))

    def flushed(self, path: str) -> None:
        """Note a flush that has just ended."""
        with self._turn:
            self.ops.append(Op("fsync", os.path.relpath(path, self.root).removeprefix(".")))

    def _look(self) -> None:
        files, folders = self._walk()
        self.ops += (Op("mkdir", f) for f in sorted(folders - self._folders))
        gone = {path: facts for path, facts in self._seen.items() if path not in files}
        by_inode = {facts[0]: path for path, facts in gone.items()}
        for path, facts in sorted(files.items()):
            before = self._seen.get(path)
            if before == facts:
                continue
            source = by_inode.get(facts[0])
            if source is not None:
                self.ops.append(Op("move", source, path))
                if gone.pop(source, facts)[1:] == facts[1:]:
                    continue  # else it was written to since, or its number is a new file's
            elif before is None or before[0] != facts[0]:
                self.ops.append(Op("make", path))
            try:
                data = Path(self.root, path).read_bytes()
            except FileNotFoundError:
                continue
            self.ops.append(Op("data", path, data=data))
        self.ops += (Op("unlink", path) for path in sorted(gone))
        self.ops += (Op("rmdir", f) for f in sorted(self._folders - folders, reverse=True))
        self._seen, self._folders = files, folders

    def _walk(self) -> tuple[dict[str, tuple[int, int, int]], set[str]]:
        files: dict[str, tuple[int, int, int]] = {}
        folders: set[str] = set()
        skip = len(self.root) + 1
        for parent, names, leaves in os.walk(self.root):
            folders.update(f"{parent}/{name}"[skip:] for name in names)
            for name in leaves:
                try:
                    facts = os.stat(f"{parent}/{name}")
                except FileNotFoundError:
                    continue
                key = facts.st_ino, facts.st_size, facts.st_mtime_ns
                files[f"{parent}/{name}"[skip:]] = key
        return files, folders


@contextmanager
def watching(root: Path, patch: pytest.MonkeyPatch) -> Iterator[Watching]:
    """Record everything that this process does below a folder."""
    seen = Watching(root)
    flush, hit = flushing.flush_path, failpoints.hit

    def flush_path(path: str) -> None:
        if path.startswith(seen.root):
            seen.look()
            flush(path)
            seen.flushed(path)
        else:
            flush(path)

    def hit_and_look(name: str) -> None:
        seen.look()
        hit(name)

    with patch.context() as now:
        now.setattr(flushing, "flush_path", flush_path)
        now.setattr(failpoints, "hit", hit_and_look)
        yield seen


# Recording with strace

_CALLS = (
    "openat,creat,write,pwrite64,rename,renameat,renameat2,link,linkat,unlink,unlinkat,"
    "mkdir,mkdirat,rmdir,fsync,fdatasync,ftruncate"
)
_LINE = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_FD = re.compile(r"^\d+<((?:[^<>])*)>")
ACK = b"\x06ack\n"


def traced(command: list[str], root: Path, trace: Path, env: dict[str, str]) -> list[Op]:
    """What a command does below a folder. It writes `ACK` to its output for each step."""
    strace = ["strace", "-f", "-y", "-xx", "-s", "4000000", "-e", f"trace={_CALLS}", "-o"]
    subprocess.run([*strace, str(trace), *command], check=True, env=env, stdout=subprocess.PIPE)
    return list(_ops(trace, str(root)))


def _ops(trace: Path, root: str) -> Iterator[Op]:
    contents: dict[str, bytes] = {}
    names: dict[str, str] = {}  # a name, and the first name of its file
    for call, arguments, result in _calls(trace):
        if result < 0:
            continue
        paths = [bytes.fromhex(t.replace("\\x", "")) for t in _TEXT.findall(arguments)]
        fd = _FD.match(arguments)
        on = _plain(fd[1]) if fd else ""
        if call in ("write", "pwrite64") and paths and paths[0] == ACK:
            yield Op("ack")
        elif call in ("write", "pwrite64") and on.startswith(f"{root}/"):
            path = on[len(root) + 1 :]
            data = contents.get(path, b"")
            start = int(arguments.rpartition(", ")[2]) if call == "pwrite64" else len(data)
            data = data[:start].ljust(start, b"\0") + paths[0] + data[start + len(paths[0]) :]
            contents[path] = data
            yield Op("data", path, data=data)
        elif call in ("fsync", "fdatasync") and (on == root or on.startswith(f"{root}/")):
            yield Op("fsync", on[len(root) + 1 :])
        elif call in ("openat", "creat"):
            made = _below(paths[0], root) if "O_CREAT" in arguments else None
            if made is not None and made not in names:
                names[made], contents[made] = made, b""
                yield Op("make", made)
        else:
            yield from _renamed(call, paths, root, contents, names)


def _renamed(
    call: str, paths: list[bytes], root: str, contents: dict[str, bytes], names: dict[str, str]
) -> Iterator[Op]:
    inside = [_below(path, root) for path in paths]
    if not inside or inside[0] is None:
        return
    path = inside[0]
    if call.startswith("rename") and inside[1] is not None:
        contents[inside[1]] = contents.pop(path, b"")
        names.pop(path, None)
        names[inside[1]] = inside[1]
        yield Op("move", path, inside[1])
    elif call.startswith("link") and inside[1] is not None:
        names[inside[1]] = inside[1]
        yield Op("link", path, inside[1])
    elif call.startswith("unlink"):
        names.pop(path, None)
        yield Op("unlink", path)
    elif call.startswith("mkdir"):
        yield Op("mkdir", path)
    elif call == "rmdir":
        yield Op("rmdir", path)


def _below(path: bytes, root: str) -> str | None:
    text = os.fsdecode(path)
    return text[len(root) + 1 :] if text.startswith(f"{root}/") else None


def _plain(text: str) -> str:
    return os.fsdecode(bytes.fromhex(text.replace("\\x", ""))) if text.startswith("\\x") else text


def _calls(trace: Path) -> Iterator[tuple[str, str, int]]:
    """Every call in the order in which they ended."""
    begun: dict[str, str] = {}
    for line in trace.read_text().splitlines():
        process, _, rest = line.partition(" ")
        rest = rest.lstrip()
        if rest.endswith("<unfinished ...>"):
            begun[process] = rest.removesuffix("<unfinished ...>").rstrip()
            continue
        if rest.startswith("<... "):
            rest = begun.pop(process, "") + rest.partition("resumed>")[2]
        matched: Any = _LINE.match(f"{process} {rest}")
        if matched:
            yield matched[1], matched[2], int(matched[3])
