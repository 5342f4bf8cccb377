"""Mutable array references as users hold them: `Ref`, `new_ref`, reading, writing, `freeze`."""
from __future__ import annotations

import weakref

from ricalco.avals import ShapedArray, dtypes
from ricalco.avals.references import RefAval
from ricalco.core import Tracer, errors, state
from ricalco.core.references import Cell, Reference
from ricalco.ops import reference_index as indexing
from ricalco.ops.references import addupdate_p, freeze_p, get_p, here, new_ref_p, part_aval, rewrite, swap_p
from ricalco.ops.structure import aval_of, convert_element_type
from ricalco.python.tracebacks import with_entries
from ricalco.tracing import enclosing


@with_entries("__getitem__", "__setitem__", "__copy__", "__deepcopy__", "__reduce__")
class Ref(Reference):
    """A mutable reference to an array: ``ref[...]`` reads what it holds, ``ref[i] = value`` changes it.

    Made by `new_ref`; inside a traced function it stands for a reference of the program. It is not an array:
    read it (``ref[...]``) where one is due.

    Attributes
    ----------
    shape, dtype, ndim, size
        Those of the array that it holds; they never change.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> ref = ricalco.new_ref(jnp.zeros(3))
    >>> ref[1] = 5.0
    >>> ref[...] += 1.0
    >>> ref
    Ref([1., 6., 1.], dtype=float32)
    """
    __slots__ = ("raw", "frozen", "_home", "__weakref__")

    def __init__(self, raw, home=None):
        self.raw, self.frozen = raw, None  # a `Cell`, or a tracer whose type is a `RefAval`
        self._home = home  # who may freeze it: the innermost trace when it was made, weakly; EAGER; None for nobody
        if raw.__class__ is Cell:
            raw.ref = weakref.ref(self)

    aval = property(lambda self: self.raw.aval)
    shape = property(lambda self: self.raw.aval.shape, doc="Sizes of the dimensions.")
    dtype = property(lambda self: self.raw.aval.dtype, doc="Element type.")
    ndim = property(lambda self: self.raw.aval.ndim, doc="Number of dimensions.")
    size = property(lambda self: self.raw.aval.size, doc="Number of elements.")
    weak_type = property(lambda self: self.raw.aval.weak_type, doc="Whether the dtype gives way to others.")

    def get(self, idx=()):
        """``ref[idx]``."""
        return get(self, idx)

    def set(self, value, idx=()) -> None:
        """``ref[idx] = value``."""
        set(self, idx, value)

    def swap(self, value, idx=()):
        """``ref[idx] = value``; returns what was there."""
        return swap(self, idx, value)

    def addupdate(self, value, idx=()) -> None:
        """Add `value` to what is at `idx`; repeated indices add repeatedly."""
        addupdate(self, idx, value)

    def __getitem__(self, idx):
        return get(self, (None,) if idx is None else idx)

    def __setitem__(self, idx, value) -> None:
        set(self, (None,) if idx is None else idx, value)

    def __len__(self) -> int:
        return len(self.raw.aval.inner)

    def __iter__(self):
        return (get(self, i) for i in range(len(self)))

    def __copy__(self):
        raise TypeError("a reference has one owner and cannot be copied; ricalco.new_ref(ref[...]) makes another one "
                        "that holds the same")

    def __deepcopy__(self, memo):
        return self.__copy__()

    def __reduce__(self):
        raise TypeError("a reference cannot be pickled; pickle what it holds, ref[...]")

    def __repr__(self) -> str:
        if self.raw.__class__ is Cell:
            return "Ref" + repr(self.raw.array).removeprefix("Array").replace("\n  ", "\n")  # a shorter word
        return f"Ref<{self.raw.aval.inner}>"


EAGER = object()


def mapped_reference(ref: Ref):
    """A reference as the operand that a mapped argument is."""
    return _live(ref, "vmap")


def as_references(leaves) -> list:
    """Arguments of a traced function as it sees them: tracers of references as `Ref`."""
    return [Ref(x) if getattr(x, "aval", None).__class__ is RefAval and x.__class__ is not Ref else x for x in leaves]


def raw_references(leaves, consts, function: str, names) -> list:
    """Arguments as operations take them. `consts` are what the function captured.

    Raises
    ------
    ValueError
        If a reference was frozen, or is there twice: its writes would have no order.
    """
    seen = {id(x): "closed over" for x in consts if getattr(x, "aval", None).__class__ is RefAval}
    for x in consts:
        if x.__class__ is Cell and x.frozen is not None:
            raise ValueError(f"{here()}{function}: the reference {x.aval.short} that it closes over was frozen at "
                             f"{x.frozen}")
    raw = []
    for i, x in enumerate(leaves):
        if x.__class__ is Ref:
            x = _live(x, f"the call of {function}")
            other = seen.setdefault(id(x), f"passed as {names[i]}")
            if other != f"passed as {names[i]}":
                raise ValueError(
                    f"{here()}{function}: the reference {x.aval.short} passed as {names[i]} is also {other}; a "
                    "function may have a reference once, or its reads and writes would depend on which name they go "
                    "by. Pass it once, or pass the array that one of them holds (ref[...]).")
        raw.append(x)
    return raw


def new_ref(init_val) -> Ref:
    """A new mutable reference that holds the array `init_val`.

    Parameters
    ----------
    init_val : array or number
        Its shape and dtype are those of the reference for good.

    Raises
    ------
    TypeError
        If `init_val` is neither; a reference has one array, not a pytree.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> @ricalco.jit
    ... def running_sums(xs):
    ...     total = ricalco.new_ref(0.0)
    ...     sums = []
    ...     for x in xs:
    ...         total[...] += x
    ...         sums.append(total[...])
    ...     return jnp.stack(sums)
    >>> running_sums(jnp.arange(4.0)).tolist()
    [0.0, 1.0, 3.0, 6.0]
    """
    if isinstance(init_val, Ref):
        raise TypeError(f"{here()}new_ref: a reference cannot hold a reference; ricalco.new_ref(ref[...]) makes "
                        "another one that holds the same array")
    try:
        aval_of(init_val)
    except TypeError:
        raise TypeError(f"{here()}new_ref: init_val must be an array or a number, got {init_val!r} of type "
                        f"{type(init_val).__name__}. A reference holds one array; make one for each leaf of a tree "
                        "with ricalco.tree.map(ricalco.new_ref, tree).") from None
    trace = enclosing()
    raw, = new_ref_p.bind(init_val)
    return Ref(raw, weakref.ref(trace) if trace is not None else EAGER)


def freeze(ref: Ref):
    """End the life of a reference: returns the array that it holds; the reference cannot be used any more.

    Raises
    ------
    ValueError
        If the reference was frozen before, or was made outside of the function that is being traced.

    Examples
    --------
    >>> import ricalco
    >>> ref = ricalco.new_ref(1.0)
    >>> ref[...] += 1.0
    >>> ricalco.freeze(ref).item()
    2.0
    """
    raw = _live(ref, "freeze")
    trace = enclosing()
    home = ref._home
    if home is None or (trace is not None if home is EAGER else home() is not trace):
        raise ValueError(f"{here()}freeze: the reference {ref.raw.aval.short} was made outside of the function that is "
                         "being traced, and lives on after it. Read it with ref[...], or freeze it where it was made.")
    out = freeze_p.bind(raw)
    ref.frozen = here().removesuffix(": ") or "an unknown line"
    if raw.__class__ is Cell:
        raw.frozen = ref.frozen
    return out


def _live(ref, what: str):
    """The reference as operations take it, if it can still be used."""
    if ref.__class__ is not Ref:
        raise TypeError(f"{here()}{what}: ref must be a reference made by ricalco.new_ref, got {ref!r} of type "
                        f"{type(ref).__name__}")
    if ref.frozen is not None:
        raise ValueError(f"{here()}{what}: the reference {ref.raw.aval.short} was frozen at {ref.frozen}; use the "
                         "array that freeze returned")
    raw = ref.raw
    if isinstance(raw, Tracer) and not raw.owner.open:
        raise errors.UnexpectedTracerError(raw)
    return raw


def get(ref: Ref, idx=None):
    """``ref[idx]``: the array at an index of what the reference holds now.

    Parameters
    ----------
    ref : Ref
    idx : index, optional
        Ints, slices with static bounds, ``...`` and integer arrays or scalars, traced ones too. Default: everything.
        A traced scalar out of bounds reads the nearest element.

    Raises
    ------
    IndexError
        If an int is out of bounds, or there are too many indices.
    ValueError
        If the reference was frozen.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> ricalco.ref.get(ricalco.new_ref(jnp.arange(4)), slice(1, 3)).tolist()
    [1, 2]
    """
    raw = _live(ref, "get")
    index, operands = indexing.parse(raw.aval.shape, idx, here)
    return get_p.bind(raw, *operands, index=index)


def _prepared(ref, idx, value, what: str) -> tuple:
    """The operands of a write, the value checked and of the dtype of the reference."""
    raw = _live(ref, what)
    aval = raw.aval
    index, operands = indexing.parse(aval.shape, idx, here)
    part = part_aval(aval, index, tuple([aval_of(x) for x in operands]))
    try:
        given = aval_of(value)
    except TypeError:
        given = None
    if given.__class__ is not ShapedArray:
        hint = "; read it with [...]" if isinstance(value, Ref) else ""
        raise TypeError(f"{here()}{what}: the value must be an array or a number, got {value!r} of type "
                        f"{type(value).__name__}{hint}")
    if given.shape != part.shape:
        raise ValueError(f"{here()}{what}: the value has shape {given.shape}, this part of {aval.short} has shape "
                         f"{part.shape}. A reference does not broadcast: write jnp.broadcast_to(value, {part.shape}).")
    if given.dtype != part.dtype:
        if not given.weak_type or dtypes.promote((part.dtype, False), (given.dtype, True))[0] != part.dtype:
            raise ValueError(f"{here()}{what}: the value has dtype {given.dtype.name}, the reference {aval.short} "
                             f"holds {part.dtype.name} and does not convert: write value.astype('{part.dtype.name}')")
        value = convert_element_type(value, part.dtype)
    return raw, value, operands, index


def set(ref: Ref, idx, value) -> None:
    """``ref[idx] = value``.

    Parameters
    ----------
    ref : Ref
    idx : index, or None for everything
        As in `get`. A traced scalar out of bounds writes the nearest element, an array of indices drops what is out
        of bounds.
    value : array or number
        Of exactly the shape and dtype of ``ref[idx]``; Python numbers take its dtype if they fit.

    Raises
    ------
    ValueError
        If the shape or dtype is another one: nothing is broadcast or converted in silence.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> ref = ricalco.new_ref(jnp.zeros(2))
    >>> ricalco.ref.set(ref, 0, 3.0)
    >>> ref[...].tolist()
    [3.0, 0.0]
    """
    raw, value, operands, index = _prepared(ref, idx, value, "set")
    if raw.__class__ is Cell and state.trace.eager and index:
        rewrite(raw, swap_p, value, index, operands)  # what was there is not read
        return
    swap_p.bind(raw, value, *operands, index=index)


def swap(ref: Ref, idx, value):
    """``ref[idx] = value``; returns what was there.

    Parameters and errors are those of `set`.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> ref = ricalco.new_ref(jnp.zeros(2))
    >>> ricalco.ref.swap(ref, 0, 3.0).item(), ref[...].tolist()
    (0.0, [3.0, 0.0])
    """
    raw, value, operands, index = _prepared(ref, idx, value, "swap")
    return swap_p.bind(raw, value, *operands, index=index)


def addupdate(ref: Ref, idx, x) -> None:
    """Add `x` to what the reference holds at `idx`; repeated indices add repeatedly.

    Parameters and errors are those of `set`.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> ref = ricalco.new_ref(jnp.ones(3))
    >>> ricalco.ref.addupdate(ref, jnp.array([0, 0]), jnp.ones(2))
    >>> ref[...].tolist()
    [3.0, 1.0, 1.0]
    """
    raw, x, operands, index = _prepared(ref, idx, x, "addupdate")
    addupdate_p.bind(raw, x, *operands, index=index)
