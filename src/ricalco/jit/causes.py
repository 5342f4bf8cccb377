"""Why a function was traced again: what differs between two signatures, as plain facts.

A signature is ``(options, treedef, *avals, *statics)``. The facts hold texts alone: no user value is kept for them.
"""
from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import numpy as np

from ricalco.avals import ShapedArray, dtypes
from ricalco.jit.signature import Arguments, StaticValue, short

# From the worst on: what stands first explains what comes after it.
KINDS = ("tree structure", "keyword against positional", "dtype", "shape", "static value", "weak type", "options",
         "captured value", "new function object")
_RANK = {kind: i for i, kind in enumerate(KINDS)}
_ABSENT = "absent"


class Cause(NamedTuple):
    """One difference between the signature of a trace and the nearest one that was known before.

    Attributes
    ----------
    kind : str
        ``shape``, ``dtype``, ``weak type``, ``static value``, ``tree structure``, ``keyword against positional``,
        ``options``, ``captured value`` or ``new function object``.
    argument : str
        What differs, by its path: ``batch['x']``, ``n``, ``global scale``, ``enable_x64``.
    old, new : str
        ``f32[32,128]`` and ``f32[48,128]``.
    fix : str
        What to change so that one trace serves both.
    function : str
        The function that was traced.
    trace : int
        Which of its own traces this caused, from 0; traces borrowed from functions of the same code do not count.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> f = ricalco.jit(lambda x: x + 1)
    >>> y = f(jnp.ones(3)), f(jnp.ones(4))
    >>> print(f.retraces()[0])
    x: f32[3] -> f32[4] (shape): pad axis 0 of `x` to 4
    """
    kind: str
    argument: str
    old: str
    new: str
    fix: str
    function: str = ""
    trace: int = 0

    def __str__(self) -> str:
        fix = f": {self.fix}" if self.fix else ""
        return f"{self.argument}: {self.old} -> {self.new} ({self.kind}){fix}"


def captured(name: str, old, new) -> Cause:
    """The cause of a trace that was made because a captured value had changed; `old` and `new` are values or texts."""
    root = name.rpartition(" ")[2]
    return Cause("captured value", name, _text(old), _text(new), f"pass `{root}` as an argument")


def new_function(name: str, old: str, new: str, fix: str) -> Cause:
    """The cause of a trace of another function object with known code."""
    return Cause("new function object", name, old, new, fix)


def _text(value) -> str:
    return value if isinstance(value, str) else describe(value)


def describe(value) -> str:
    """A value in few words: arrays by type, the rest by their repr. A repr that fails is said to."""
    aval = getattr(value, "aval", None)
    if isinstance(aval, ShapedArray):
        return type_text(aval)
    if isinstance(value, np.ndarray):
        return f"numpy {value.dtype.name}{list(value.shape)}".replace(" [", "[")
    try:
        return short(value)
    except Exception as error:  # noqa: BLE001 - the user's __repr__; the fact is told all the same
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"


def type_text(aval: ShapedArray) -> str:
    return f"weak {aval.short}" if aval.weak_type else aval.short


# --- two signatures ---------------------------------------------------------------------------

class Signature:
    """A signature taken apart, when somebody asks."""
    __slots__ = ("_places", "avals", "key", "options", "statics", "treedef")

    def __init__(self, key: tuple):
        self.key, self.options, self.treedef = key, key[0], key[1]
        n = self.treedef.num_leaves
        self.avals, self.statics = key[2:2 + n], key[2 + n:]
        self._places = None

    def distance(self, other: Signature) -> tuple[int, int]:
        """How many things differ, roughly: structures count for more than types."""
        differing = sum(a != b for a, b in zip(self.statics, other.statics))
        differing += abs(len(self.statics) - len(other.statics)) + (self.options is not other.options)
        if self.treedef == other.treedef:
            return 0, differing + sum(a is not b for a, b in zip(self.avals, other.avals))
        return 1, differing + abs(self.treedef.num_nodes - other.treedef.num_nodes)

    def places(self, arguments: Arguments) -> dict[str, tuple[str, object]]:
        """How each argument was passed, and its structure."""
        if self._places is None:
            positional, named = self.treedef.children()
            self._places = {arguments.name_of(i): ("positional", sub) for i, sub in enumerate(positional.children())
                            if i not in arguments.static_nums}
            self._places |= {str(name): ("keyword", sub) for name, sub in zip(named.entries(), named.children())}
            statics = {s.name for s in self.statics}
            by_position = {arguments.name_of(i) for i in range(positional.num_children) if i in arguments.static_nums}
            self._places |= {name: ("positional" if name in by_position else "keyword", None) for name in statics}
        return self._places


def differences(arguments: Arguments, old: Signature, new: Signature) -> list[Cause]:
    """What differs between two signatures of one function, the worst first."""
    found = _of_options(old.options, new.options) + _of_statics(old.statics, new.statics)
    if old.treedef != new.treedef:
        found += _of_trees(arguments, old, new)
        known = dict(zip(arguments.leaf_names(old.treedef), old.avals))
        pairs = [(name, known[name], aval) for name, aval in zip(arguments.leaf_names(new.treedef), new.avals)
                 if name in known]
    else:
        changed = [i for i, (a, b) in enumerate(zip(old.avals, new.avals)) if a is not b]
        names = arguments.leaf_names(new.treedef) if changed else ()
        pairs = [(names[i], old.avals[i], new.avals[i]) for i in changed]
    found += [_of_types(name, a, b) for name, a, b in pairs if a is not b]
    return sorted(found, key=lambda c: _RANK[c.kind])


def nearest(known: list[Signature], new: Signature) -> Signature:
    """The known signature with the fewest differences; of equals, the latest."""
    return min(reversed(known), key=new.distance)


def _of_options(old, new) -> list[Cause]:
    if old is new:
        return []
    changed = [(f.name, getattr(old, f.name), getattr(new, f.name)) for f in fields(new)]
    return [Cause("options", name, repr(a), repr(b), f"set {name} once, before the first call")
            for name, a, b in changed if a != b]


def _of_types(name: str, old: ShapedArray, new: ShapedArray) -> Cause:
    texts = type_text(old), type_text(new)
    if old.shape != new.shape:
        return Cause("shape", name, *texts, _shape_fix(name, old, new))
    if old.dtype != new.dtype:
        wider = max(new, old, key=lambda a: "biufc".find(dtypes.kind(a.dtype)))
        return Cause("dtype", name, *texts, _scalar_fix(name, wider))
    return Cause("weak type", name, *texts, _scalar_fix(name, new))


def _scalar_fix(name: str, aval: ShapedArray) -> str:
    made = f"jnp.{aval.dtype.name}(...)" if aval.dtype != dtypes.bool_ else "jnp.bool_(...)"
    if aval.shape:
        return f"pass `{name}` as {aval.dtype.name} each time: .astype(jnp.{aval.dtype.name})"
    return f"pass `{name}` as {made} each time, not as a Python number"


def _shape_fix(name: str, old: ShapedArray, new: ShapedArray) -> str:
    if old.ndim != new.ndim:
        return f"pass `{name}` with {old.ndim} dimensions each time" if old.ndim else \
            f"pass `{name}` with one shape each time"
    axes = [i for i, (m, n) in enumerate(zip(old.shape, new.shape)) if m != n]
    if len(axes) == 1:
        return f"pad axis {axes[0]} of `{name}` to {max(old.shape[axes[0]], new.shape[axes[0]])}"
    largest = tuple([max(m, n) for m, n in zip(old.shape, new.shape)])
    return f"pad `{name}` to {largest}"


def _of_statics(old: tuple[StaticValue, ...], new: tuple[StaticValue, ...]) -> list[Cause]:
    before, after = {s.name: s for s in old}, {s.name: s for s in new}
    found = []
    for name in {**before, **after}:
        a, b = before.get(name), after.get(name)
        if a is None or b is None:
            texts = [_ABSENT if s is None else describe(s.value) for s in (a, b)]
            found.append(Cause("static value", name, *texts, f"pass `{name}` the same way each time, or leave it out "
                               "each time"))
        elif a != b:
            found.append(Cause("static value", name, *_static_texts(a.value, b.value), _static_fix(name, a, b)))
    return found


def _static_texts(old, new) -> tuple[str, str]:
    texts = describe(old), describe(new)
    return texts if texts[0] != texts[1] else tuple(f"{t} of type {type(v).__name__}" if type(old) is not type(new)
                                                    else f"{t} at {id(v):#x}" for t, v in zip(texts, (old, new)))


def _static_fix(name: str, old: StaticValue, new: StaticValue) -> str:
    if type(new.value) is not type(old.value):
        return f"pass `{name}` as one type each time"
    if isinstance(new.value, (int, float, complex, np.generic)) and not isinstance(new.value, (bool, np.bool_)):
        return f"make `{name}` a traced argument: leave it out of static_argnames"
    cls = type(new.value)
    if cls.__eq__ is object.__eq__:
        if callable(new.value):
            return f"make the function for `{name}` once, and pass that one each time"
        return f"`{name}` is compared by identity: pass the same object each time, or give {cls.__name__} __eq__ and " \
               "__hash__"
    return f"keep the values of `{name}` few, or make it a traced argument"


def _of_trees(arguments: Arguments, old: Signature, new: Signature) -> list[Cause]:
    before, after = old.places(arguments), new.places(arguments)
    found = []
    for name in {**before, **after}:
        how_old, tree_old = before.get(name, (None, None))
        how_new, tree_new = after.get(name, (None, None))
        if how_old is None or how_new is None:
            if (tree_old or tree_new) is None:
                continue  # a static value: told among those
            texts = [_ABSENT if tree is None else _kind(tree) for tree in (tree_old, tree_new)]
            found.append(Cause("tree structure", name, *texts, f"pass `{name}` each time, or leave it out each time"))
        elif how_old != how_new:
            found.append(Cause("keyword against positional", name, how_old, how_new,
                               f"pass `{name}` the same way each time"))
        if tree_old is not None and tree_new is not None and tree_old != tree_new:
            found += _between(name, tree_old, tree_new)
    return found or [Cause("tree structure", "the arguments", short(old.treedef), short(new.treedef),
                           "pass arguments of one structure each time")]


def _between(path: str, old, new) -> list[Cause]:
    """Where two structures differ, from the top down."""
    if old.type is not new.type or old.is_leaf() or new.is_leaf():
        return [Cause("tree structure", path, _kind(old), _kind(new), f"pass `{path}` with one structure each time")]
    before, after = _children(old), _children(new)
    found = []
    for step in {**before, **after}:
        a, b = before.get(step), after.get(step)
        if a is None or b is None:
            texts = [_ABSENT if x is None else _kind(x) for x in (a, b)]
            found.append(Cause("tree structure", path + step, *texts, f"give `{path}` the same "
                               f"{'length' if issubclass(old.type, (list, tuple)) else 'keys'} each time"))
        elif a != b:
            found += _between(path + step, a, b)
    return found or [Cause("tree structure", path, _kind(old), _kind(new), f"the static fields of `{path}` differ: "
                           "keep them the same, or make them children")]


def _children(treedef) -> dict[str, object]:
    """The subtrees by the step that leads to them: ``['w']``, ``[0]``, ``.bias``."""
    steps = []
    for i, entry in enumerate(treedef.entries()):
        path = treedef.one_level().accessors() if treedef.num_children else ()
        steps.append(path[i].codify("") if len(path) == treedef.num_children else f"[{entry!r}]")
    return dict(zip(steps, treedef.children()))


def _kind(treedef) -> str:
    if treedef.is_leaf():
        return "array"
    if treedef.type is type(None):
        return "None"
    name = treedef.type.__name__ if treedef.type is not None else "leaf"
    if issubclass(treedef.type, dict):
        return f"{name} with {', '.join(map(repr, treedef.entries())) or 'no keys'}"
    if treedef.type in (list, tuple):
        return f"{name} of {treedef.num_children}"
    return name
