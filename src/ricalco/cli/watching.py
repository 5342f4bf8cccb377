"""Keeps what every jitted function of a process traces, and how long its programs run."""
from __future__ import annotations

import os
import re
import threading
import weakref
from time import perf_counter
from types import SimpleNamespace

from ricalco.jit import records
from ricalco.jit.driver import Entry, Jit
from ricalco.jit.records import TraceRecord
from ricalco.jit.retraces import retraces
from ricalco.jit.stages import Compiled
from ricalco.report.account import Account, account_of, stale_of
from ricalco.report.explain import defined_at
from ricalco.report.page_run import run_page
from ricalco.report.runs import FunctionRun
from ricalco.report.words import file_line


class Watcher(records.Watcher):
    """While it is entered, jitted functions that are made are known, and their traces and calls are kept.

    Parameters
    ----------
    keep_programs : bool
        Whether to keep the traced programs, for pages, and not their records alone.
    """

    def __init__(self, keep_programs: bool = False):
        self._keep = keep_programs
        self._made: weakref.WeakSet[Jit] = weakref.WeakSet()
        self._accounts: dict[int, Account] = {}  # by the id of the record: functions may share a trace
        self._histories: dict[int, tuple[tuple[str, str], SimpleNamespace]] = {}  # texts: they outlive the function
        self._lock = threading.Lock()

    def __enter__(self) -> Watcher:
        records.watchers.append(self)
        return self

    def __exit__(self, *exc) -> None:
        records.watchers.remove(self)

    def made(self, this: Jit) -> None:
        self._made.add(this)

    def traced(self, this: Jit, entry: Entry) -> None:
        if this in self._made:
            # Now, for what is captured can be found by name as long as nobody binds the name to something else.
            record = entry.traced.record
            account = account_of(record, traced=entry.traced if self._keep else None, guards=entry.guards)
            past = (this.name, defined_at(this.function)), SimpleNamespace(history=this.history)
            with self._lock:
                self._accounts.setdefault(id(record), account)
                self._histories[id(this.history)] = past

    def compiled(self, compiled: Compiled) -> None:
        """Let the program add up the time of its calls, results included."""
        execute, record, lock = compiled.execute, compiled.record, self._lock

        def timed(buffers):
            start = perf_counter()
            return _Results(execute(buffers), record, start, lock)

        compiled.execute = compiled.executable.execute = timed
        compiled.dispatches = False  # jaxlib's own dispatcher would go past the clock

    # --- at the end

    def functions(self) -> list[FunctionRun]:
        """What is known of each function, the most expensive first. A lambda made in a loop is one function."""
        groups: dict[tuple[str, str], list] = {}
        for account in self._accounts.values():
            groups.setdefault((account.function, account.place), []).append(account)
        causes, stale = self._causes(), self._stale()
        found = [FunctionRun(*key, tuple(accounts), tuple(causes.get(key, ())), tuple(dict.fromkeys(stale[key])))
                 for key, accounts in groups.items()]
        return sorted(found, key=lambda f: -f.total)

    def _causes(self) -> dict[tuple[str, str], list]:
        found: dict[tuple[str, str], list] = {}
        for key, past in self._histories.values():
            found.setdefault(key, []).extend(retraces(past))
        return found

    def _stale(self) -> dict[tuple[str, str], list]:
        """What was found changed on a call, and, of functions that still exist, what has changed since."""
        found: dict[tuple[str, str], list] = {}
        for account in self._accounts.values():
            found.setdefault((account.function, account.place), []).extend(account.record.stale)
        for this in list(self._made):
            found.setdefault((this.name, defined_at(this.function)), []).extend(stale_of(this))
        return found

    def never_called(self) -> list[str]:
        """Names of functions that were made and not traced."""
        traced = {(account.function, account.place) for account in self._accounts.values()}
        made = {(this.name, defined_at(this.function)) for this in self._made}
        return [f"{name} ({file_line(place)})" if place else name for name, place in sorted(made - traced)]

    def write_pages(self, folder: str, title: str, seconds: float, functions: list[FunctionRun],
                    never_called: list[str]) -> None:
        """A page for each trace, and an index of them."""
        os.makedirs(folder, exist_ok=True)
        pages: list[list[str]] = []
        for rank, function in enumerate(functions, 1):
            pages.append([])
            for number, account in enumerate(function.accounts, 1):
                word = re.sub(r"[^A-Za-z0-9]+", "_", function.function).strip("_")
                name = f"{rank:03}-{word}-{number}.html"
                account.to_html(os.path.join(folder, name))
                pages[-1].append(name)
        with open(os.path.join(folder, "index.html"), "w", encoding="utf-8") as file:
            file.write(run_page(title, seconds, functions, never_called, pages))


class _Results:
    """Results of a call; when they are taken, the time until they are there is added to the record."""
    __slots__ = ("_inner", "_lock", "_record", "_start")

    def __init__(self, inner, record: TraceRecord, start: float, lock):
        self._inner, self._record, self._start, self._lock = inner, record, start, lock

    def consume_with_handlers(self, handlers):
        buffers = self._inner.consume_with_handlers(handlers)
        for buffer in buffers:
            buffer.block_until_ready()
        spent = perf_counter() - self._start
        with self._lock:
            seconds = self._record.seconds
            seconds["run"] = seconds.get("run", 0.0) + spent
        return buffers
