"""The run folder: whose it is, who holds it, and how files in it change.

``manifest.json records.jsonl records.parquet arrays.npz verdict.json report.html checkpoints/``

A folder belongs to one run, told by the hash of what was asked. The same command again resumes an
interrupted run and leaves a finished one alone; another command is refused. Every file but the growing
``records.jsonl`` is written beside its place and renamed, so that a crash leaves the old file or the new.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Literal

from triplepoint.errors import FolderInUseError, RunFolderError
from triplepoint.records import SCHEMA_VERSION, Record, read_jsonl, to_line, write_parquet

State = Literal["new", "interrupted", "finished"]


def identity_of(asked: Mapping[str, object]) -> str:
    """Return the hash that tells one run from another: SHA-256 over the canonical JSON of ``asked``.

    Example:
        >>> identity_of({"steps": 5, "lr": 0.1}) == identity_of({"lr": 0.1, "steps": 5})
        True
    """
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def hash_of_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, shortened as :func:`identity_of` is."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def default_folder(kind: str, *asked: object) -> Path:
    """Return a folder under ``runs`` named after what was asked, so that the same command finds it again."""
    return Path("runs") / f"{kind}-{identity_of({'asked': [repr(a) for a in asked]})[:8]}"


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a path to write to; at the end it takes the place of ``path``, whole or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield beside
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except RunFolderError:
        raise
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def _unwritable(path: Path, error: OSError) -> RunFolderError:
    if isinstance(error, FileExistsError | NotADirectoryError):
        return RunFolderError(
            f"{path} cannot be a folder: {error.strerror}, something on the way is a file.\n"
            "Choose another folder with --out."
        )
    if isinstance(error, FileNotFoundError) and not path.parent.exists():
        return RunFolderError(
            f"{path} cannot be written: its folder was deleted while the run was going on.\n"
            "Run the same command again; it starts anew."
        )
    return RunFolderError(
        f"{path} cannot be written: {error.strerror or error}.\n"
        "Free some space or choose another folder with --out; run the same command again to resume."
    )


def write_json(path: Path, value: object) -> None:
    """Write ``value`` as indented JSON, atomically; a non-finite number is an error of the caller."""
    text = json.dumps(value, indent=2, default=str, allow_nan=False) + "\n"
    with atomic_path(path) as beside:
        beside.write_text(text)


def read_json(path: Path) -> dict:
    """Read a JSON object.

    Raises:
        RunFolderError: If the file is missing, or is not a JSON object.
    """
    try:
        value = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunFolderError(
            f"{path.parent} is not a run folder: it has no {path.name}.\n"
            "Give the folder that --out named, or the folder of one of its arms."
        ) from error
    except (ValueError, OSError) as error:
        raise RunFolderError(
            f"{path} cannot be read: {error}.\n"
            "The file is damaged; restore it, or start the run again in a new folder."
        ) from error
    if not isinstance(value, dict):
        raise RunFolderError(f"{path} holds no JSON object.\nRestore it, or use a new folder.")
    return value


def _take_lock(path: Path) -> IO[str]:
    lock = (path / ".lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise FolderInUseError(
            f"{path} is in use by another process.\n"
            "Wait until it ends, or choose another folder with --out."
        ) from error
    return lock


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a folder that exists, as a :class:`RunFolder` does, without claiming it for a run.

    Raises:
        FolderInUseError: If another process holds it.
    """
    lock = _take_lock(path)
    try:
        yield
    finally:
        lock.close()


def in_use(path: Path) -> bool:
    """Return whether a process holds the lock of ``path`` at this moment."""
    try:
        with locked(path):
            return False
    except FolderInUseError:
        return True
    except OSError:  # no such folder
        return False


class RunFolder:
    """One run's folder, locked while it is open.

    Args:
        path: The folder; made if missing.
        asked: What identifies the run: everything that changes its numbers, as JSON values.
        kind: ``train``, ``screen`` or ``grok``; part of the identity.
        writer: False for the other processes of a run on several: they neither lock nor write.

    Raises:
        RunFolderError: If the folder holds another run or other files, is in use, or cannot be written.
    """

    def __init__(
        self, path: str | Path, *, asked: Mapping[str, object], kind: str, writer: bool = True
    ):
        self.path = Path(path)
        self.identity = identity_of({"kind": kind, **asked})
        self._asked = {"kind": kind, **asked}
        self._records: IO[bytes] | None = None
        self._lock: IO[str] | None = None
        if not writer:
            finished = read_json(self.manifest_path).get("status") == "finished"
            self.state: State = "finished" if finished else "interrupted"
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _take_lock(self.path)
        except OSError as error:
            if isinstance(error, RunFolderError):
                raise
            raise _unwritable(self.path, error) from error
        try:
            self.state = self._claim()
        except BaseException:
            self.close()
            raise

    def _claim(self) -> State:
        if self.manifest_path.exists():
            manifest = read_json(self.manifest_path)
            if manifest.get("identity") != self.identity:
                raise RunFolderError(
                    f"{self.path} belongs to another run: {_difference(manifest.get('asked', {}), self._asked)}.\n"
                    "Choose another folder with --out, or delete this one."
                )
            return "finished" if manifest.get("status") == "finished" else "interrupted"
        foreign = [p.name for p in self.path.iterdir() if not p.name.startswith(".")]
        if foreign:
            raise RunFolderError(
                f"{self.path} holds files that are not a run's: {', '.join(sorted(foreign)[:3])}.\n"
                "Choose an empty or new folder with --out."
            )
        self.write_manifest({"status": "running"})
        return "new"

    @property
    def manifest_path(self) -> Path:
        """Where the manifest lies."""
        return self.path / "manifest.json"

    def write_manifest(self, facts: Mapping[str, object]) -> None:
        """Write the manifest: identity, what was asked, and ``facts``."""
        head = {"schema": SCHEMA_VERSION, "identity": self.identity, "asked": self._asked}
        write_json(self.manifest_path, {**head, **facts})

    def rewind(self, size: int) -> None:
        """Cut ``records.jsonl`` back to ``size`` bytes: what followed the checkpoint is measured again."""
        path = self.path / "records.jsonl"
        try:
            with path.open("ab") as file:
                if file.tell() < size:
                    raise RunFolderError(
                        f"{path} is shorter than its checkpoint says ({file.tell()} < {size} bytes).\n"
                        "The file was changed by another program; start in a new folder."
                    )
                file.truncate(size)
        except OSError as error:
            raise (
                error if isinstance(error, RunFolderError) else _unwritable(path, error)
            ) from error

    def append(self, records: Iterable[Record]) -> int:
        """Append ``records``; returns the size of ``records.jsonl`` in bytes after it."""
        path = self.path / "records.jsonl"
        try:
            if self._records is None:
                self._records = path.open("ab")
            self._records.write("".join(f"{to_line(r)}\n" for r in records).encode())
            self._records.flush()
            return self._records.tell()
        except OSError as error:
            raise _unwritable(path, error) from error

    def sync(self) -> None:
        """Make the appended records survive a power cut; called before a checkpoint counts on them."""
        if self._records is not None:
            os.fsync(self._records.fileno())

    def finish(self, facts: Mapping[str, object]) -> None:
        """Write ``records.parquet`` and mark the run finished, in this order."""
        size = self.append(())  # also where a resumed run has nothing to add
        with atomic_path(self.path / "records.parquet") as beside:
            write_parquet(self.read_records(size), beside)
        self.write_manifest({**facts, "status": "finished", "records_size": size})

    def read_records(self, size: int) -> list[Record]:
        """Read ``records.jsonl``, which must have ``size`` bytes."""
        return read_records(self.path, size)

    def close(self) -> None:
        """Release the lock."""
        for file in (self._records, self._lock):
            if file is not None:
                # what could not be flushed was reported by append; the lock is released all the same
                with contextlib.suppress(OSError):
                    file.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_records(folder: Path, size: int) -> list[Record]:
    """Read the records of a run, which must have ``size`` bytes: none may have been lost since.

    Raises:
        RunFolderError: If the file is gone or has another size.
    """
    path = folder / "records.jsonl"
    found = path.stat().st_size if path.exists() else None
    if found != size and not (found is None and size == 0):
        raise RunFolderError(
            f"{path} {'is gone' if found is None else f'has {found} of {size} bytes'}: it was changed by another program.\n"
            f"Delete the folder {folder} and run the command again."
        )
    return read_jsonl(path) if found else []


def _difference(asked_then: Mapping[str, object], asked_now: Mapping[str, object]) -> str:
    # through JSON, as the old one went: a tuple is not another value than a list
    old, new = _flat(asked_then), _flat(json.loads(json.dumps(asked_now, default=str)))
    keys = [k for k in {**old, **new} if old.get(k) != new.get(k)]
    return (
        "; ".join(f"{k} was {old.get(k)!r}, now {new.get(k)!r}" for k in keys[:3])
        or "older version"
    )


def _flat(asked: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in asked.items():
        flat |= (
            _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
        )
    return flat


def write_arrays(path: Path, arrays: Mapping[str, object]) -> None:
    """Write named arrays as a compressed ``.npz``, atomically."""
    import numpy as np

    with atomic_path(path) as beside, beside.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_arrays(path: Path) -> dict:
    """Read what :func:`write_arrays` wrote, without unpickling anything.

    Raises:
        RunFolderError: If the file is missing or damaged.
    """
    import zipfile
    import zlib

    import numpy as np

    try:
        # opened here, because numpy leaves a damaged file open
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise RunFolderError(
            f"{path} cannot be read: {error}.\nDelete the folder {path.parent} and run the command again."
        ) from error


PARQUET_TYPES = {str: "string", float: "float64", int: "int64", bool: "bool_"}


def write_rows(
    path: Path, rows: Iterable[Mapping[str, object]], columns: Mapping[str, type]
) -> None:
    """Write ``rows`` as Parquet, atomically: one column per entry of ``columns``, None where a row has none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    taken = list(rows)
    table = pa.table(
        {name: [row.get(name) for row in taken] for name in columns},
        schema=pa.schema([(n, getattr(pa, PARQUET_TYPES[t])()) for n, t in columns.items()]),
    )
    with atomic_path(path) as beside:
        pq.write_table(table, beside, compression="zstd")


def read_rows(path: Path) -> list[dict]:
    """Read what :func:`write_rows` wrote.

    Raises:
        RunFolderError: If the file is missing or damaged.
    """
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise RunFolderError(
            f"{path} cannot be read: {error}.\nRun the command that made it again; it writes it anew."
        ) from error
