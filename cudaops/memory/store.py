"""Memory: what runs learnt of kernels and what users noted, in one SQLite database.

Several processes may read and write at once: SQLite lets one writer in at a time, and readers see
what was there when they began (WAL).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from cudaops.domain.memory import KernelKey, MemoryEntry, Pattern
from cudaops.errors import EnvironmentFailure, InputError
from cudaops.memory.results import KernelMemory, aggregate, put_together

FILE = "memory.sqlite"
WAIT_S = 10.0
"""Longest wait for another writer. A write takes milliseconds."""

APPLICATION = 0x6364616F
"""`cdao`, in the file's head: no other program's database is taken for ours."""
VERSION = 1
"""Of SCHEMA."""
_FIELDS = tuple(MemoryEntry.model_fields)
SCHEMA = f"""
CREATE TABLE kernel (
    id INTEGER PRIMARY KEY,
    structure TEXT NOT NULL,
    device_class TEXT NOT NULL,
    name TEXT NOT NULL, -- where it was last seen
    UNIQUE (structure, device_class)
);
CREATE TABLE result ( -- cudaops.domain.memory.MemoryEntry, oldest first by id
    id INTEGER PRIMARY KEY,
    kernel INTEGER NOT NULL REFERENCES kernel ON DELETE CASCADE,
    {", ".join(f"{field} {'REAL' if field == 'speedup' else 'TEXT'}" for field in _FIELDS)}
);
CREATE INDEX result_kernel ON result (kernel, source_id);
CREATE TABLE note (
    id INTEGER PRIMARY KEY,
    kernel INTEGER NOT NULL REFERENCES kernel ON DELETE CASCADE,
    text TEXT NOT NULL
);
CREATE INDEX note_kernel ON note (kernel);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""
_ADD = (
    f"INSERT INTO result (kernel, {', '.join(_FIELDS)}) "
    f"VALUES (:kernel, {', '.join(f':{field}' for field in _FIELDS)})"
)
_THERE = "SELECT 1 FROM result WHERE kernel = :kernel AND " + " AND ".join(
    f"{field} IS :{field}" for field in _FIELDS if field != "date"
)
_RESULTS = f"SELECT {', '.join(_FIELDS)} FROM result WHERE kernel = ? ORDER BY id"
_NOTES = "SELECT text FROM note WHERE kernel = ? ORDER BY id DESC"
_SAME = "structure = ? AND device_class = ?"
_ITS = f"kernel IN (SELECT id FROM kernel WHERE {_SAME})"

_ELSEWHERE = "set CUDAOPS_MEMORY to a folder that this user may write to, or to off"
_MOVE = f"move it away to start a new one, or {_ELSEWHERE}; nothing in it was changed"


class MemoryStore:
    """What runs learnt, in `folder`/memory.sqlite. Every read sees what is there by then.

    Raises EnvironmentFailure where the file or the folder cannot be read or written, or the file is
    none of ours: it is left as it is. Where there is none yet, nothing is known; only writing makes
    it.
    """

    def __init__(self, folder: Path, *, wait_s: float = WAIT_S) -> None:
        self.folder = folder
        self.file = folder / FILE
        self._wait_s = wait_s

    def kernels(self) -> tuple[KernelMemory, ...]:
        """Every kernel that something is known of, by name."""
        with self._reading() as db:
            return tuple(_kernels(db))

    def recall(self, key: KernelKey) -> KernelMemory:
        """What is known of this kernel on this class of device; its name decides nothing."""
        with self._reading() as db:
            there = list(_kernels(db, key))
        return there[0].model_copy(update={"key": key}) if there else KernelMemory(key=key)

    def patterns(
        self, subtype: str | None = None, device_class: str | None = None
    ) -> tuple[Pattern, ...]:
        """What families of strategies brought, over all kernels; most promising first."""
        return aggregate(self.kernels(), subtype, device_class)

    def record(self, key: KernelKey, entry: MemoryEntry) -> None:
        """Keep one result. What is there already, whatever its date, is not written twice: a
        resumed run may record again."""
        with self._writing() as db:
            row = _row(_kernel(db, key), entry)
            if db.execute(_THERE, row).fetchone() is None:
                db.execute(_ADD, row)

    def note(self, key: KernelKey, text: str) -> None:
        """Keep the user's words on a kernel. Raises InputError where there are none."""
        if not text.strip():
            raise InputError("a note needs text")
        with self._writing() as db:
            _note(db, _kernel(db, key), text)

    def forget(self, key: KernelKey | None = None) -> int:
        """Remove this kernel, all of them without a key, notes included; returns how many."""
        if key is None:
            return self._deleted("DELETE FROM kernel")
        return self._deleted(f"DELETE FROM kernel WHERE {_SAME}", *_key(key))

    def forget_results(self, key: KernelKey, source_id: str) -> int:
        """Remove every result of one rewrite; returns how many."""
        return self._deleted(
            f"DELETE FROM result WHERE {_ITS} AND source_id = ?", *_key(key), source_id
        )

    def forget_notes(self, key: KernelKey) -> int:
        """Remove the user's words on a kernel; returns how many notes."""
        return self._deleted(f"DELETE FROM note WHERE {_ITS}", *_key(key))

    def _deleted(self, sql: str, *values: str) -> int:
        if not self.kernels():  # nor is a folder made to forget in
            return 0
        with self._writing() as db:
            return db.execute(sql, values).rowcount

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """One state of the database."""
        with self._failures():
            where = ":memory:"
            with suppress(FileNotFoundError):
                self.file.stat()  # `exists` takes what may not be entered for missing
                # A reader beside WAL makes files, too; where it may not, nobody else writes either.
                how = "mode=rw" if os.access(self.folder, os.W_OK) else "mode=ro&immutable=1"
                where = f"{self.file.absolute().as_uri()}?{how}"
            with self._connected(where) as db:
                db.execute("BEGIN")
                yield db

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction as the only writer: all of it happens, or nothing."""
        with self._failures():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            with self._connected(f"{self.file.absolute().as_uri()}?mode=rw") as db:
                with suppress(sqlite3.OperationalError):  # others are in it: next time
                    db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA secure_delete = ON")  # what is forgotten is overwritten
                db.execute("PRAGMA foreign_keys = ON")
                db.execute("BEGIN IMMEDIATE")
                yield db
                db.execute("COMMIT")

    @contextmanager
    def _connected(self, where: str) -> Iterator[sqlite3.Connection]:
        """A database that is ours. A new one gets the schema."""
        opened = sqlite3.connect(where, uri=True, timeout=self._wait_s, isolation_level=None)
        with closing(opened) as db:
            if _is_new(db):
                db.execute("BEGIN IMMEDIATE")
                if _is_new(db):  # nobody was quicker
                    _make(db)
                db.execute("COMMIT")
            application, version = _pragma(db, "application_id"), _pragma(db, "user_version")
            if application != APPLICATION:
                problem = f"memory: {self.file} belongs to another program"
                raise EnvironmentFailure(problem, _MOVE)
            if version != VERSION:
                problem = f"memory: {self.file} is of a later cudaops, version {version}"
                raise EnvironmentFailure(problem, f"update cudaops, or {_ELSEWHERE}")
            yield db

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """What fails within, as the user is told it."""
        try:
            yield
        except OSError as error:
            problem = f"memory: {error.filename or self.file}: {error.strerror or error}"
            raise EnvironmentFailure(problem, _ELSEWHERE) from error
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_BUSY:
                raise EnvironmentFailure(
                    f"memory: another process has kept {self.file} locked for {self._wait_s:g} s",
                    "wait for it to end",
                ) from error
            damaged = code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
            raise EnvironmentFailure(
                f"memory: {self.file}: {error}", _MOVE if damaged else _ELSEWHERE
            ) from error


def _is_new(db: sqlite3.Connection) -> bool:
    """Whether the file is empty."""
    (objects,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return not (objects or _pragma(db, "application_id") or _pragma(db, "user_version"))


def _make(db: sqlite3.Connection) -> None:
    for statement in SCHEMA.split(";"):
        db.execute(statement)


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def _kernels(db: sqlite3.Connection, key: KernelKey | None = None) -> Iterator[KernelMemory]:
    """Of this kernel, of all without a key, what is not empty."""
    sql = "SELECT id, structure, device_class, name FROM kernel"
    order = " ORDER BY name, structure, device_class"
    rows = db.execute(f"{sql} WHERE {_SAME}", _key(key)) if key else db.execute(sql + order)
    for kernel, structure, device_class, name in rows.fetchall():
        memory = KernelMemory(
            key=KernelKey(structure=structure, device_class=device_class, name=name),
            entries=tuple(filter(None, map(_entry, db.execute(_RESULTS, (kernel,))))),
            notes="\n".join(text for (text,) in db.execute(_NOTES, (kernel,))),
        )
        if not memory.empty:
            yield put_together(memory)


def _entry(row: tuple[object, ...]) -> MemoryEntry | None:
    """None where another version of cudaops knew an outcome or a gate that this one does not."""
    try:
        return MemoryEntry.model_validate(dict(zip(_FIELDS, row, strict=True)))
    except ValidationError:
        return None


def _kernel(db: sqlite3.Connection, key: KernelKey) -> int:
    """Its id; its name is the one it has now."""
    db.execute(
        "INSERT INTO kernel (structure, device_class, name) VALUES (?, ?, ?) "
        "ON CONFLICT (structure, device_class) DO UPDATE SET name = excluded.name",
        (*_key(key), _storable(key.name)),
    )
    return int(db.execute(f"SELECT id FROM kernel WHERE {_SAME}", _key(key)).fetchone()[0])


def _note(db: sqlite3.Connection, kernel: int, text: str) -> None:
    db.execute("INSERT INTO note (kernel, text) VALUES (?, ?)", (kernel, _storable(text.strip())))


def _row(kernel: int, entry: MemoryEntry) -> dict[str, object]:
    fields = entry.model_dump()
    return {"kernel": kernel} | {
        name: _storable(value) if isinstance(value, str) else value
        for name, value in fields.items()
    }


def _key(key: KernelKey) -> tuple[str, str]:
    return key.structure, key.device_class


def _storable(text: str) -> str:
    """Half of a surrogate pair, which no file can hold, becomes a question mark."""
    return text.encode("utf-8", "replace").decode()
