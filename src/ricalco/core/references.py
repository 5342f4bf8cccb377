"""What a mutable reference is below the operations on it: `Reference`, and `Cell`, the storage outside of traces."""
from __future__ import annotations

from ricalco.avals.references import RefAval
from ricalco.core.values import Array
from ricalco.python.reading import know_arrays


class Reference:
    """The base of what users hold (`ops.refs.Ref`), for rooms that need only know one when they see it."""
    __slots__ = ()


know_arrays(Reference)


def no_array(x) -> TypeError:
    """What to raise where `x` stands and an array or a number is due."""
    text = f"{x!r} of type {type(x).__name__} is not an array or a number"
    if isinstance(x, Reference):
        text += ": it is a reference to an array; read it with [...]"
    elif hasattr(x, "shape") and hasattr(x, "dtype"):
        text += ": it says the type of one; pass it as an argument of eval_shape, make_jaxpr or .lower"
    return TypeError(text)


class Cell:
    """The storage behind a mutable reference; users see the `Ref` that it belongs to.

    Attributes
    ----------
    aval : RefAval
    array : Array
        What the reference holds now. A write puts another array in its place: arrays never change.
    shared : bool
        Whether somebody else may hold `array`, so that its memory must not be reused.
    ref : weakref.ref or None
        To the user's object.
    frozen : str or None
        The line that ended the reference.
    """
    __slots__ = ("aval", "array", "shared", "ref", "frozen", "__weakref__")

    def __init__(self, array: Array, shared: bool = True):
        self.aval, self.array, self.shared = RefAval(array.aval), array, shared
        self.ref = self.frozen = None

    def put(self, array: Array) -> None:
        """Hold `array`, which nobody else holds."""
        self.array, self.shared = array, False

    def lend(self) -> Array:
        """What the reference holds, for somebody who may keep it."""
        self.shared = True
        return self.array

    def __repr__(self) -> str:
        return f"Cell({self.array!r})"
