"""Compiled programs kept on disk, for the next process: compiling takes 10 to 100 times as long as loading.

An entry is named by the hash of everything that its code depends on, and sealed with that hash, so that a file under
another's name is noticed as a damaged one is; `Executable.serialize` adds the types, the jaxlib and the processor. What
does not fit, or may have been written by somebody else, is never loaded: a warning tells of it, and the program is
compiled again. Nothing that goes wrong with a file stops a program.
"""
from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ricalco.avals import ShapedArray
from ricalco.engine.executable import FORMAT, Executable, target
from ricalco.python.places import warn_at_user_line

_SUFFIX = ".xla"
_UNFINISHED = ".part"
# Programs that compile faster are not written. Nothing that XLA compiles for a CPU takes less; loading takes 1 ms.
_WORTH_KEEPING = 0.003
_DEFAULT_LIMIT = 2 << 30
_BLOCK = 4096
_LEFT_BEHIND = 3600 * 10**9  # ns; a file that has been unfinished for so long has no writer
_OFF = {"", "off", "none", "no", "false", "0"}
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


# --- the key -------------------------------------------------------------------------------

# What a canonical text keeps as it is, then what it drops or names anew: quoted text first, for it may hold anything.
_PARTS = (r'(?m)"(?:[^"\\]|\\.)*"|custom_call @[\w.$-]+'
          r'| loc\(#s\d+\)|^#s\d+ = loc\(.*\)\n|^module @\S+|@[\w.$-]+')
_PRIVATE = r"func\.func private @([\w.$-]+)"


def canonical(text: str) -> str:
    """A module's text without source places, and with functions named by their order."""
    names = {f"@{name}": f"@{i}" for i, name in enumerate(re.findall(_PRIVATE, text))}

    def changed(match: re.Match) -> str:
        found = match[0]
        first = found[0]
        if first == "@":
            return names.get(found, found)
        return found if first in '"c' else ""

    return re.sub(_PARTS, changed, text)


def key_of(text: str, out_avals: Sequence[ShapedArray], donated: Sequence[int] = (),
           compiler_options: Mapping[str, object] | None = None, callbacks: int = 0) -> str:
    """The name of the entry for a program: equal for programs that become the same code."""
    options = sorted((name, type(value).__name__, repr(value)) for name, value in (compiler_options or {}).items())
    types = [(a.shape, a.dtype.name) for a in out_avals]
    facts = [FORMAT, target(), _threads(), types, tuple(donated), options, callbacks]
    return hashlib.sha256(f"{facts!r}\n{canonical(text)}".encode()).hexdigest()


def _threads() -> int:
    """XLA splits loops among the processors that there are when it compiles."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --- the files -----------------------------------------------------------------------------

class CacheInfo(NamedTuple):
    """What is in a cache. Sizes in bytes, times in seconds since 1970; `last_used` is that of the least recent."""
    directory: str
    entries: int
    size: int
    limit: int
    last_used: float | None


class _Entry(NamedTuple):
    last_used: int
    size: int
    path: str


class DiskCache:
    """A directory of entries.

    Parameters
    ----------
    directory : path
        Made when the first entry is written, readable by its owner alone.
    limit : int
        Bytes of whole disk blocks. When the entries exceed it, those that were used least recently are removed. It
        is looked at now and then: at one write in 32, and when this process has written a sixteenth of it.
    told : bool
        Whether to warn, once, if entries cannot be written.
    """

    def __init__(self, directory: str | os.PathLike, limit: int = _DEFAULT_LIMIT, told: bool = True):
        self.directory, self.limit, self.told = os.path.abspath(os.path.expanduser(directory)), limit, told
        self.writable = True
        self._alone = True  # whether nobody else was seen to be able to write there
        self._written = 0  # bytes since the sizes were looked at
        self._lock = threading.Lock()

    def path(self, key: str) -> str:
        return os.path.join(self.directory, key + _SUFFIX)

    def safe(self) -> bool:
        """Whether only this user can write there, now; the first time that it is not so there is a warning."""
        try:
            facts = os.stat(self.directory)
        except OSError:
            return True  # there is none yet, and it will be made for its owner alone
        alone = not _others_write(facts)
        if self._alone and not alone:
            self._alone = False
            warn_at_user_line(f"the directory {self.directory!r} is not used for compiled programs, for others can "
                              f"write there (owner {facts.st_uid}, mode {stat.S_IMODE(facts.st_mode):o}) and programs "
                              "are machine code. Make it yours alone (chown, chmod go-w), or name another one in "
                              "RICALCO_CACHE_DIR")
        return alone

    def read(self, key: str) -> bytes | None:
        """The bytes kept under `key`; None if there are none. They count as used now.

        Raises
        ------
        ValueError
            If something else stands in the place of a file, or somebody else can write it.
        """
        path = self.path(key)
        try:
            with open(path, "rb", opener=_open_at_once) as file:
                facts = os.fstat(file.fileno())
                if not stat.S_ISREG(facts.st_mode) or _others_write(facts):
                    raise ValueError(f"not a file that only this user can write (owner {facts.st_uid}, "
                                     f"mode {facts.st_mode:o})")
                data = file.read() if facts.st_size <= self.limit else None
        except OSError:
            return None
        if data is None:
            self.drop(key)
            return None
        try:
            os.utime(path)
        except OSError:
            pass  # on a read-only disk nothing is removed either
        return data

    def write(self, key: str, data: bytes) -> None:
        """Keep bytes under `key`: whole or not at all, whoever else writes or reads it now."""
        if not self.writable:
            return
        try:
            self._write(key, data)
        except OSError as error:
            self.writable = False
            if self.told:
                warn_at_user_line(f"compiled programs cannot be kept in {self.directory!r}: {error.strerror or error}. "
                                  "They are kept in memory only; RICALCO_CACHE_DIR names another one, or is 'off'")

    def _write(self, key: str, data: bytes) -> None:
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        unfinished = os.path.join(self.directory, f"{key}-{os.getpid()}-{os.urandom(6).hex()}{_UNFINISHED}")
        try:
            with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
            os.replace(unfinished, self.path(key))
        except BaseException:
            _remove(unfinished)
            raise
        with self._lock:
            self._written += _on_disk(len(data))
            if self._written > self.limit // 16 or int(key[:2], 16) % 32 == 0:
                self._written = 0
                self._shrink()

    def drop(self, key: str) -> None:
        """Remove an entry that is not what it should be."""
        _remove(self.path(key))

    def _entries(self) -> tuple[list[_Entry], list[_Entry]]:
        """Entries, and files that somebody is writing, or died writing."""
        kept, unfinished = [], []
        try:
            with os.scandir(self.directory) as files:
                for file in files:
                    if file.name.endswith((_SUFFIX, _UNFINISHED)):
                        try:
                            facts = file.stat(follow_symlinks=False)
                        except OSError:
                            continue  # another process removed it
                        to = kept if file.name.endswith(_SUFFIX) else unfinished
                        to.append(_Entry(facts.st_mtime_ns, _on_disk(facts.st_size), file.path))
        except OSError:
            pass  # there is no such directory, or none that can be read: nothing is kept
        return kept, unfinished

    def _shrink(self) -> None:
        """Remove the entries used least recently until the others fit."""
        entries, unfinished = self._entries()
        size = sum([entry.size for entry in entries])
        if size > self.limit:
            # Some room is made, so that not every write looks at all files.
            for entry in sorted(entries):
                if size <= self.limit * 9 // 10:
                    break
                _remove(entry.path)
                size -= entry.size
        for entry in unfinished:
            if entry.last_used < time.time_ns() - _LEFT_BEHIND:
                _remove(entry.path)

    def info(self) -> CacheInfo:
        entries, _ = self._entries()
        return CacheInfo(self.directory, len(entries), sum([e.size for e in entries]), self.limit,
                         min(entries).last_used / 1e9 if entries else None)

    def clear(self) -> int:
        """Remove all entries; how many there were. Other files stay."""
        entries, unfinished = self._entries()
        for entry in (*entries, *unfinished):
            _remove(entry.path)
        self.writable = True
        return len(entries)


def _on_disk(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _open_at_once(path: str, flags: int) -> int:
    """For `open`: a FIFO is opened as it is, without waiting for a writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _others_write(facts: os.stat_result) -> bool:
    """Whether users other than this one and the superuser can write there, where files say that."""
    return hasattr(os, "geteuid") and (facts.st_uid not in (os.geteuid(), 0) or bool(facts.st_mode & 0o022))


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # gone already, or not ours to remove: it is overwritten or refused again


# --- the cache of this process -------------------------------------------------------------

class _State:
    cache: DiskCache | None = None
    chosen = False


_lock = threading.Lock()


def current() -> DiskCache | None:
    """The cache that this process uses, None if it uses none. The environment is read at the first call."""
    if not _State.chosen:
        with _lock:
            if not _State.chosen:
                named = os.environ.get("RICALCO_CACHE_DIR")
                limit = _size(os.environ.get("RICALCO_CACHE_SIZE", str(_DEFAULT_LIMIT)))
                directory = default_directory() if named is None else named
                if directory is not None and directory.strip().lower() not in _OFF:
                    # A home that cannot be written to is no news, a directory that somebody named is.
                    _State.cache = DiskCache(directory, limit, told=named is not None)
                _State.chosen = True
    return _State.cache


def use(directory: str | os.PathLike | None) -> None:
    """Keep programs in another directory from now on; None keeps none."""
    if directory is not None and not isinstance(directory, (str, os.PathLike)):
        raise TypeError(f"compilation_cache_dir={directory!r}: expected a path, or None for no cache on disk")
    if directory is not None and "\0" in (directory := os.fsdecode(directory)):
        raise ValueError(f"compilation_cache_dir={directory!r}: a path has no NUL")
    before = current()
    limit = before.limit if before is not None else _DEFAULT_LIMIT
    _State.cache = DiskCache(directory, limit) if directory is not None else None


def limit_to(size: int) -> None:
    """Keep at most so many bytes from now on."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ValueError(f"compilation_cache_max_size={size!r}: expected a number of bytes")
    cache = current()
    if cache is not None:
        cache.limit = size


def default_directory() -> str | None:
    """Where the system keeps what can be made again, for each user: ``~/.cache/ricalco`` on Linux. None for no home."""
    home = os.path.expanduser("~")
    if home == "~":
        return None
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
        return os.path.join(local, "ricalco", "Cache")
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Caches", "ricalco")
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"), "ricalco")


def _size(text: str) -> int:
    """Bytes, from ``500M`` or ``2G`` or a number."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?\s*", text, re.IGNORECASE)
    if match is None:
        raise ValueError(f"RICALCO_CACHE_SIZE={text!r}: expected a number of bytes, such as 500M or 2G")
    return int(min(float(match[1]) * _UNITS[match[2].upper()], sys.maxsize))


def executable_for(text: str, out_avals: Sequence[ShapedArray], *, donated: Sequence[int] = (),
                   compiler_options: Mapping[str, bool | int | float | str] | None = None,
                   callbacks: Sequence[Callable] = ()) -> Executable:
    """`Executable`, from disk if it was compiled before (its `from_disk` says so); else it is kept there."""
    cache = current()
    if cache is None or not cache.safe():
        return Executable(text, out_avals, donated=donated, compiler_options=compiler_options, callbacks=callbacks)
    key = key_of(text, out_avals, donated, compiler_options, len(callbacks))
    seal = bytes.fromhex(key)
    try:
        data = cache.read(key)
        if data is not None:
            made = Executable.deserialize(data, out_avals, donated=donated, callbacks=callbacks, key=seal)
            made.from_disk = True
            return made
    except ValueError as error:
        cache.drop(key)
        warn_at_user_line(f"{cache.path(key)!r} does not hold the program that it should, which is compiled again: "
                          f"{error}")
    start = time.perf_counter()
    made = Executable(text, out_avals, donated=donated, compiler_options=compiler_options, callbacks=callbacks)
    if cache.writable and time.perf_counter() - start >= _WORTH_KEEPING:
        cache.write(key, made.serialize(seal))
    return made
