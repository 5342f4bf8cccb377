"""What makes two calls the same: tree structure, types, static values by type and value, options."""
from __future__ import annotations

import dataclasses
import inspect
import operator
import types
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ricalco.avals import ShapedArray, dtypes, python_aval, shaped, trees
from ricalco.avals.memory import Memo
from ricalco.core import Array
from ricalco.engine import DeviceArray
from ricalco.ops.refs import Ref
from ricalco.ops.structure import PYTHON_NUMBERS
from ricalco.python.places import clip
from ricalco.transforms.arguments import function_name, parameters_of, paths_of_keywords


class ShapeDtypeStruct:
    """The shape and dtype of an array that need not exist. Stands for one where only types matter.

    Parameters
    ----------
    shape : sequence of int
    dtype : dtype-like
    weak_type : bool

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> ricalco.eval_shape(jnp.dot, ricalco.ShapeDtypeStruct((2, 3), "float32"), jnp.ones(3))
    ShapeDtypeStruct(shape=(2,), dtype=float32)
    """
    __slots__ = ("shape", "dtype", "weak_type")

    def __init__(self, shape, dtype, *, sharding=None, weak_type: bool = False):
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified.")
        try:
            self.shape = tuple(operator.index(n) for n in shape)
        except TypeError:
            raise TypeError(f"ShapeDtypeStruct: shape must be a sequence of ints, got {shape!r}") from None
        self.dtype, self.weak_type = dtypes.as_dtype(dtype), weak_type

    @classmethod
    def like(cls, x) -> ShapeDtypeStruct:
        """That of an array, number or other struct."""
        aval = leaf_aval(x)
        if aval is None:
            raise TypeError(f"ShapeDtypeStruct.like: {short(x)} of type {type(x).__name__} is not an array or a number")
        return cls(aval.shape, aval.dtype, weak_type=aval.weak_type)

    def update(self, **changes) -> ShapeDtypeStruct:
        """This with another ``shape``, ``dtype`` or ``weak_type``."""
        return ShapeDtypeStruct(**dict(shape=self.shape, dtype=self.dtype, weak_type=self.weak_type) | changes)

    sharding = None  # where it is put is not said
    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: int(np.prod(self.shape, dtype=np.int64)))

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{weak})"

    def __eq__(self, other) -> bool:
        return isinstance(other, ShapeDtypeStruct) and (self.shape, self.dtype, self.weak_type) == (
            other.shape, other.dtype, other.weak_type)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self.weak_type))


class StaticValue:
    """A static argument in a signature: equal to another of the same type and value.

    ``1``, ``True`` and ``1.0`` differ, and so do ``0.0`` and ``-0.0``, inside tuples too.
    """
    __slots__ = ("value", "name", "_hash", "_form")

    def __init__(self, value, name: str):
        self.value, self.name = value, name
        try:
            self._hash = hash(value)
        except TypeError as error:
            raise ValueError(
                f"Non-hashable static arguments are not supported: argument {name} is {value!r} of type "
                f"{type(value).__name__} ({error}). Pass a hashable value, such as a tuple instead of a list or a "
                "frozen dataclass, or make the argument an array or a pytree.") from None
        self._form = _exact(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other) -> bool:
        if not isinstance(other, StaticValue) or self._form != other._form:
            return False
        if self.value is other.value:
            return True
        equal = self.value == other.value
        try:
            return bool(equal)
        except Exception as error:
            raise ValueError(
                f"Static arguments must be comparable: == of two values of argument {self.name} of type "
                f"{type(self.value).__name__} gave a {type(equal).__name__}, which is neither true nor false. Define "
                "__eq__ so that it returns a bool, or make the argument an array.") from error

    def changed(self) -> bool:
        """Whether the value's hash is another one now."""
        try:
            return hash(self.value) != self._hash
        except TypeError:
            return True

    def __repr__(self) -> str:
        return f"{self.name}={self.value!r}"


def _exact(value):
    """What ``==`` does not tell apart: types, and the sign of zero; inside tuples, sets and dataclasses too."""
    cls = value.__class__
    if cls in _PLAIN:
        return cls
    if isinstance(value, (float, complex, np.inexact)):
        return (cls, str(value)) if value == 0 else cls
    if isinstance(value, tuple):
        return cls, tuple([_exact(v) for v in value])
    if isinstance(value, frozenset):
        return cls, frozenset([(_exact(v), v) for v in value])
    if dataclasses.is_dataclass(value):
        return cls, tuple([_exact(getattr(value, f.name, None)) for f in dataclasses.fields(value) if f.compare])
    return cls


_PLAIN = frozenset({int, bool, str, bytes, type(None)})


_UNREAD: list = []


class Arguments:
    """How the arguments of one function are sorted: static, donated, dynamic."""
    __slots__ = ("name", "_function", "_parameters", "static_nums", "static_names", "donated_nums", "donated_names")

    def __init__(self, function: Callable, static_argnums, static_argnames, donate_argnums, donate_argnames):
        self.name, self._function, self._parameters = function_name(function), function, _UNREAD
        self.static_nums, self.static_names = self._resolve("static", static_argnums, static_argnames)
        self.donated_nums, self.donated_names = self._resolve("donate", donate_argnums, donate_argnames)
        both = self.static_names & self.donated_names or self.static_nums & self.donated_nums
        if both:
            raise ValueError(f"static and donated arguments of jit({function_name(function)}) overlap: {sorted(both)}")

    @property
    def parameters(self) -> list[inspect.Parameter] | None:
        """Those of the function, if it tells; read when first needed."""
        if self._parameters is _UNREAD:
            self._parameters = parameters_of(self._function)
        return self._parameters

    def given(self) -> dict:
        """The arguments of `jit` that say the same."""
        return dict(static_argnums=sorted(self.static_nums), static_argnames=sorted(self.static_names),
                    donate_argnums=sorted(self.donated_nums), donate_argnames=sorted(self.donated_names))

    def let_go(self) -> None:
        """Keep alive nothing that the function holds: from now on this knows the parameters alone."""
        function = self._function
        bound = type(function) is types.MethodType
        if type(inner := function.__func__ if bound else function) is types.FunctionType and not inner.__dict__:
            code = inner.__code__  # `inspect` is slow, and mostly nobody asks
            inner = types.FunctionType(code, {}, closure=tuple([types.CellType() for _ in code.co_freevars]))
            self._function = types.MethodType(inner, ()) if bound else inner
            return
        if self.parameters is not None:
            empty = inspect.Parameter.empty
            self._parameters = [p.replace(default=empty, annotation=empty) for p in self.parameters]
        self._function = None

    def _positional(self) -> list[str]:
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return [p.name for p in self.parameters or () if p.kind in kinds]

    def _resolve(self, what: str, nums, names) -> tuple[frozenset[int], frozenset[str]]:
        """Positions and names, each completed from the other by the signature."""
        nums, names = set(_integers(f"{what}_argnums", nums)), set(_strings(f"{what}_argnames", names))
        if not nums and not names or self.parameters is None:
            return frozenset(nums), frozenset(names)
        positional = self._positional()
        title = self.name
        open_ended = any(p.kind is p.VAR_POSITIONAL for p in self.parameters)
        for i in sorted(nums):
            if not open_ended and not -len(positional) <= i < len(positional):
                raise ValueError(f"jitted function {title} has {len(positional)} positional arguments, but "
                                 f"{what}_argnums={i} is out of range")
        any_name = any(p.kind is p.VAR_KEYWORD for p in self.parameters)
        known = {p.name for p in self.parameters}
        for name in sorted(names):
            if not any_name and name not in known:
                raise ValueError(f"jitted function {title} has no argument {name!r} named in {what}_argnames; its "
                                 f"arguments are {', '.join(sorted(known)) or 'none'}")
        nums = {i % len(positional) if i < 0 and positional else i for i in nums}
        nums |= {i for i, name in enumerate(positional) if name in names}
        by_name = {p.name for p in self.parameters if p.kind is not p.POSITIONAL_ONLY}
        names |= {positional[i] for i in nums if i < len(positional) and positional[i] in by_name}
        return frozenset(nums), frozenset(names)

    def split(self, args: tuple, kwargs: dict) -> tuple[tuple, dict, tuple[StaticValue, ...]]:
        """Dynamic arguments (a static one leaves None in its place), and the static values."""
        if not self.static_nums and not self.static_names:
            return args, kwargs, ()
        statics, dynamic, rest = [], list(args), dict(kwargs)
        for i in sorted(self.static_nums):
            if i < len(dynamic):
                statics.append(StaticValue(dynamic[i], self.name_of(i)))
                dynamic[i] = None
        for name in sorted(self.static_names):
            if name in rest:
                statics.append(StaticValue(rest.pop(name), name))
        return tuple(dynamic), rest, tuple(statics)

    def join(self, args: Sequence, kwargs: dict, statics: Sequence[StaticValue]) -> tuple[list, dict]:
        """The inverse of `split`."""
        if not statics:
            return list(args), kwargs
        full, rest, feed = list(args), dict(kwargs), iter(statics)
        positional = [i for i in sorted(self.static_nums) if i < len(full)]
        for i in positional:
            full[i] = next(feed).value
        for static in feed:
            rest[static.name] = static.value
        return full, rest

    def name_of(self, position: int) -> str:
        """The name of the argument at `position`."""
        positional = self._positional()
        if position < len(positional):
            return positional[position]
        starred = next((p.name for p in self.parameters or () if p.kind is p.VAR_POSITIONAL), "args")
        return f"{starred}[{position - len(positional)}]"

    def leaf_names(self, treedef) -> trees.Names:
        """The name of each leaf of ``(args, kwargs)``: ``params['w'][0]``."""
        return trees.Names(treedef.num_leaves, lambda: self._leaf_names(treedef))

    def _leaf_names(self, treedef) -> list[str]:
        args, kwargs = treedef.children()
        return [*trees.paths_under(args, map(self.name_of, range(args.num_children))),
                *paths_of_keywords(kwargs)]

    def donated_leaves(self, treedef) -> list[bool]:
        """For each leaf of ``(args, kwargs)``, whether it is donated."""
        if not self.donated_nums and not self.donated_names:
            return [False] * treedef.num_leaves
        return [a[1].entry in (self.donated_nums if a[0].entry == 0 else self.donated_names)
                for a in treedef.accessors()]


def _integers(argument: str, value) -> Iterable[int]:
    if value is None:
        return ()
    values = value if isinstance(value, (tuple, list, set, frozenset, range)) else (value,)
    try:
        return [operator.index(i) for i in values]
    except TypeError:
        raise TypeError(f"{argument} must be an int or a tuple of ints, got {value!r}") from None


def _strings(argument: str, value) -> Iterable[str]:
    if value is None:
        return ()
    values = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (value,)
    for name in values:
        if not isinstance(name, str):
            raise TypeError(f"{argument} must be a str or a sequence of str, got {value!r}")
    return values


# Types that no option changes.
_ALWAYS = frozenset(dtypes.as_dtype(n) for n in ("float32", "int32", "bool", "uint8", "bfloat16", "float16")) | {
    dtypes.float0}


_host_avals = Memo()


def host_aval(x: np.ndarray) -> ShapedArray | None:
    """The type that a NumPy array has as an argument, or None if its dtype is no number's."""
    found = _host_avals.get((x.shape, x.dtype))
    if found is not None:
        return found
    if x.dtype in _ALWAYS:
        return _host_avals.keep((x.shape, x.dtype), shaped(x.shape, x.dtype))
    try:
        return shaped(x.shape, dtypes.canonicalize(x.dtype))
    except TypeError:
        return None


def leaf_aval(x) -> ShapedArray | None:
    """The type of an argument leaf, or None if it is not an array, a number or a `ShapeDtypeStruct`."""
    if x.__class__ is DeviceArray or isinstance(x, Array) or x.__class__ is Ref:
        return x.aval
    if x.__class__ in PYTHON_NUMBERS:
        return python_aval(x.__class__)
    if isinstance(x, (np.ndarray, np.generic)):
        return host_aval(x)
    if isinstance(x, ShapeDtypeStruct):
        return shaped(x.shape, dtypes.canonicalize(x.dtype), x.weak_type)
    if isinstance(x, ShapedArray):
        return x
    if hasattr(x, "__jax_array__"):
        return leaf_aval(x.__jax_array__())
    if isinstance(x, (int, float, complex)):
        return python_aval(next(t for t in (bool, int, float, complex) if isinstance(x, t)))
    return None


def flatten_arguments(arguments: Arguments, dynamic: tuple, types: bool = False
                      ) -> tuple[list, object, list[ShapedArray]]:
    """Leaves, tree structure and types of ``(args, kwargs)``; with `types`, of anything that has a shape and a dtype.

    Raises
    ------
    TypeError
        If a leaf is not an array or a number; it names the argument and the way out.
    """
    leaves, treedef = trees.flatten(dynamic)
    avals = [x.aval if x.__class__ is DeviceArray else host_aval(x) if x.__class__ is np.ndarray else leaf_aval(x)
             for x in leaves]
    for i, aval in enumerate(avals):
        if aval is None:
            x = leaves[i]
            if types and hasattr(x, "shape") and hasattr(x, "dtype") and not isinstance(x, np.ndarray):
                avals[i] = leaf_aval(ShapeDtypeStruct(x.shape, x.dtype))
                continue
            name = arguments.leaf_names(treedef)[i]
            if isinstance(x, (np.ndarray, np.generic)):
                raise TypeError(f"argument {name} of {arguments.name} has dtype {x.dtype}; arrays "
                                "hold numbers and bools")
            raise TypeError(
                f"Error interpreting argument to {arguments.name} as an abstract array: argument "
                f"{name} is {short(x)} of type {type(x).__name__}, which is not an array, a number or a registered "
                f"pytree. {_way_out(arguments, name, x)}")
    return leaves, treedef, avals


def _way_out(arguments: Arguments, name: str, x) -> str:
    """What to do about an argument that is no array."""
    kind, method, register = type(x).__name__, arguments.name, "ricalco.tree_util.register_pytree_node"
    if name == "self" and arguments.parameters and arguments.parameters[0].name == name:
        return (f"{method} was jitted in the body of its class, where self is an argument like others. What works:\n"
                f"  make {kind} a pytree ({register}_class, or register_dataclass), if it holds arrays: they are then "
                "arguments of the program\n"
                f"  jit the bound method, self.{method} = jit(self.{method}) in __init__, if what it reads of self "
                "stays as it is\n"
                f"  jit(..., static_argnums=0), which traces again for each {kind} that is not equal to one before "
                "(__eq__ and __hash__)")
    whole = name.split("[")[0].split(".")[0]
    return f"Make it static (static_argnames={whole!r}), or register its type with {register}."


def short(x) -> str:
    return clip(repr(x))
