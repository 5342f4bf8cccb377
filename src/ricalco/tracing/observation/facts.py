"""What an observed trace is known to have taken and done: plain facts, filled by the observers, worded by `report`."""
from __future__ import annotations

from typing import NamedTuple

from ricalco.python.places import Place


class Read(NamedTuple):
    """A value that user code took from outside the traced function.

    Attributes
    ----------
    path : str
        How it is reached: ``global W``, ``closure scale of make_step``, ``self.layers[3].bias``,
        ``global config["lr"]``, ``os.environ["MODE"]``, ``default eps of norm``.
    kind : str
        ``array``, ``number``, ``string``, ``bool``, ``None``, ``length``, ``key``, ``container``, ``object``,
        ``function``, ``environment``, ``context`` or ``reference``.
    value : str
        The value or a summary, at most 60 characters.
    place : Place or None
        The first read.
    roles : tuple of str
        What it became: ``constvar``, ``literal``, ``decided a branch``, ``decided a shape``, ``static``,
        ``by reference``.
    dtype, shape, nbytes
        Of an array; else None, None, 0.
    equations : tuple of int
        The equations that use it, by number.
    count : int
        How often it was read.
    """
    path: str
    kind: str
    value: str
    place: Place | None
    roles: tuple[str, ...] = ()
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    nbytes: int = 0
    equations: tuple[int, ...] = ()
    count: int = 1


class Effect(NamedTuple):
    """Something that ran while tracing and will not run again.

    Attributes
    ----------
    kind : str
        ``print``, ``log``, ``global write``, ``nonlocal write``, ``attribute write``, ``mutation``, ``file``,
        ``network``, ``process``, ``clock``, ``random``, ``lost update`` (a dropped ``x.at[...]`` result) or
        ``argument mutation``.
    what : str
        In words of the source: ``print("loss", loss)``, ``global COUNT``, ``results.append(...)``.
    place : Place or None
    count : int
    branch : str
        The branch of a conditional that it ran in: ``branches[1] of lax.switch (not taken)``; empty outside of all.
    """
    kind: str
    what: str
    place: Place | None
    count: int = 1
    branch: str = ""


class Decision(NamedTuple):
    """A branch, loop or assertion that Python decided while tracing.

    Attributes
    ----------
    construct : str
        ``if``, ``while``, ``for``, ``assert``, ``and``, ``or``, ``conditional expression``, ``comprehension`` or
        ``match``.
    condition : str
        The source text of the condition, or of the iterable of a loop.
    outcome : str
        ``True``, ``False``, ``True 3 times, False once``, ``24 iterations``.
    reason : str
        What made it static: ``n = 3 is static``, ``x.shape[0] = 4``, ``global DEBUG = False``; empty if unknown.
    place : Place
    count : int
        How often it was decided.
    equations : int
        Of a loop: how many equations its body recorded.
    """
    construct: str
    condition: str
    outcome: str
    reason: str
    place: Place
    count: int = 1
    equations: int = 0


class SourceLine(NamedTuple):
    """A line of user code: its number and text, how often it ran, the equations it recorded (by number)."""
    number: int
    text: str
    runs: int
    equations: tuple[int, ...] = ()


class Listing(NamedTuple):
    """The source of one function that ran; a line with ``runs == 0`` that is code was never reached.

    Attributes
    ----------
    never_reached : tuple of int
        Numbers of lines that hold code and did not run.
    """
    file: str
    function: str
    lines: tuple[SourceLine, ...]
    never_reached: tuple[int, ...] = ()


class Observation(NamedTuple):
    """All that was observed of one trace.

    Attributes
    ----------
    how : str
        ``sys.monitoring`` or ``sys.settrace``.
    shape_reads : tuple of (str, Place)
        Where a shape or dtype of a traced value was read by Python: ``x.shape[0] = 4``.
    unseen : tuple of str
        What could not be seen, stated.
    """
    how: str
    reads: tuple[Read, ...] = ()
    effects: tuple[Effect, ...] = ()
    decisions: tuple[Decision, ...] = ()
    listings: tuple[Listing, ...] = ()
    shape_reads: tuple[tuple[str, Place], ...] = ()
    unseen: tuple[str, ...] = ()
