"""A StableHLO text builder. It knows names, types, attributes and regions; it knows no primitive."""
from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np

from ricalco.avals import ShapedArray, dtypes, shaped
from ricalco.avals.memory import Memo

# --- exact constants: every element is written as its bit pattern, so no decimal text loses a bit ----

def scalar_text(value: np.generic | np.ndarray, dtype: np.dtype) -> str:
    """What stands inside ``dense<...>`` for a splat of `value`."""
    kind = dtypes.kind(dtype)
    if kind in "bV":
        return "true" if kind == "b" and value else "false"
    if kind in "iu":
        return str(int(value))
    if kind == "c":
        part = dtypes.part_of(dtype)
        value = np.asarray(value, dtype)
        return f"({_bits(value.real, part)}, {_bits(value.imag, part)})"
    return _bits(value, dtype)


def _bits(value, dtype: np.dtype) -> str:
    raw = np.asarray(value, dtype).tobytes()
    return f"0x{int.from_bytes(raw, 'little'):0{dtypes.bits_of(dtype) // 4}X}"


# --- modules, functions, blocks ----------------------------------------------------------------------

class Target(NamedTuple):
    """What a module is compiled for, as far as its text depends on it. Lowering rules find it as ``block.target``.

    Attributes
    ----------
    platform : str
        Its name, as `platform_dependent` has it.
    callback : str
        The attributes of a custom call that runs a Python function.
    separate : str
        The attributes of a call that stays a call: what it computes is not merged with equal operations.
    keeps_barriers : bool
        Whether operations behind an optimization barrier are not merged with equal ones before it.
    concatenates : int
        How many bits an element has at least, for arrays of them to be concatenated.
    divides_by_zero : bool
        Whether the compiler may meet a division of integer constants by zero.
    """
    platform: str
    callback: str
    separate: str
    keeps_barriers: bool
    concatenates: int
    divides_by_zero: bool


class Value:
    """An SSA value: its name in the text and its type."""
    __slots__ = ("name", "aval")

    def __init__(self, name: str, aval: ShapedArray):
        self.name, self.aval = name, aval


class Token:
    """The type of the value that keeps operations with side effects in order."""
    __slots__ = ()
    mlir = "!stablehlo.token"


TOKEN = Token()


class Block:
    """One straight-line block under construction.

    Attributes
    ----------
    lines : list of str
        The operations written so far.
    module : Module
        Where private functions go.
    target : Target
        What the module is compiled for.
    location : str
        Appended to each operation: `` loc(#s3)`` or nothing.
    args : list of Value
        The block's arguments.
    token : Value or None
        What the next operation with a side effect takes; it leaves its own. None until `start_token`.
    """
    __slots__ = ("lines", "module", "location", "args", "token", "_names", "_constants")

    def __init__(self, module: Module, names: Iterator[int] | None = None, arg_avals=()):
        self.lines: list[str] = []
        self.module = module
        self.location = ""
        self._names = names if names is not None else count(1)  # one counter for a function and its regions
        self._constants: dict[tuple, Value] = {}
        self.token: Value | None = None
        self.args = [self.fresh(a) for a in arg_avals]

    @property
    def target(self) -> Target:
        return self.module.target

    def fresh(self, aval: ShapedArray) -> Value:
        """A new name."""
        return Value(f"%{next(self._names)}", aval)

    # --- operations

    def unary(self, op: str, x: Value, out: ShapedArray) -> Value:
        """``op x`` where operand and result have one type: the short form."""
        name = f"%{next(self._names)}"
        self.lines.append(f"{name} = {op} {x.name} : {out.mlir}{self.location}")
        return Value(name, out)

    def binary(self, op: str, x: Value, y: Value, out: ShapedArray) -> Value:
        """``op x, y`` where operands and result have one type: the short form."""
        name = f"%{next(self._names)}"
        self.lines.append(f"{name} = {op} {x.name}, {y.name} : {out.mlir}{self.location}")
        return Value(name, out)

    def op(self, name: str, operands, out: ShapedArray, attrs: str = "") -> Value:
        """The generic form: ``"name"(operands) {attrs} : (types) -> type``."""
        v = self.fresh(out)
        self.lines.append(
            f'{v.name} = "{name}"({", ".join([x.name for x in operands])}){" {" + attrs + "}" if attrs else ""} : '
            f'({", ".join([x.aval.mlir for x in operands])}) -> {out.mlir}{self.location}')
        return v

    def ops(self, name: str, operands, outs, attrs: str = "", regions: tuple[Block, ...] = ()) -> list[Value]:
        """The generic form with any number of results and regions (blocks closed by `returns`)."""
        results, left = self._results(outs)
        attrs = f" {{{attrs}}}" if attrs else ""
        types = f'({", ".join([x.aval.mlir for x in operands])}) -> ({", ".join([a.mlir for a in outs])})'
        head = f'{left}"{name}"({", ".join([x.name for x in operands])})'
        if not regions:
            self.lines.append(f"{head}{attrs} : {types}{self.location}")
            return results
        self.lines.append(f"{head} ({{")
        for i, region in enumerate(regions):
            if i:
                self.lines.append("}, {")
            if region.args:
                self.lines.append(f"^bb0({', '.join(f'{a.name}: {a.aval.mlir}' for a in region.args)}):")
            self.lines.extend("  " + line for line in region.lines)
        self.lines.append(f"}}){attrs} : {types}{self.location}")
        return results

    def _results(self, outs) -> tuple[list[Value], str]:
        """The results of an operation, and the text that names them: ``%3 = ``, or ``%3:2 = `` for ``%3#0, %3#1``."""
        results = [self.fresh(a) for a in outs]
        if not results:
            return results, ""
        base = results[0].name
        if len(results) == 1:
            return results, f"{base} = "
        for i, v in enumerate(results):
            v.name = f"{base}#{i}"
        return results, f"{base}:{len(results)} = "

    def region(self, arg_avals=()) -> Block:
        """A block inside this one, with arguments of these types."""
        inner = Block(self.module, self._names, arg_avals)
        inner.location, inner.token = self.location, self.token
        return inner

    def start_token(self) -> Value:
        """The current token, made if there is none. Before a region is opened whose operations have side effects."""
        if self.token is None:
            self.token = self.op("stablehlo.create_token", (), TOKEN)
        return self.token

    def returns(self, values) -> None:
        """End a region."""
        types = ", ".join([v.aval.mlir for v in values])
        self.lines.append(f'"stablehlo.return"({", ".join([v.name for v in values])}) : ({types}) -> ()')

    # --- constants and shapes

    def constant(self, value, aval: ShapedArray) -> Value:
        """A constant filled with the scalar `value`, written exactly; one per block, value and type."""
        key = (value.tobytes() if hasattr(value, "tobytes") else (type(value), repr(value)), aval.mlir)
        v = self._constants.get(key)
        if v is None:
            v = self._constants[key] = self.fresh(aval)
            text = scalar_text(value, aval.dtype) if aval.size else ""
            self.lines.append(f"{v.name} = stablehlo.constant dense<{text}> : {aval.mlir}{self.location}")
        return v

    def spread(self, x: Value, shape: tuple[int, ...]) -> Value:
        """The scalar `x` in every element of an array of this shape."""
        if x.aval.shape == shape:
            return x
        key = (x.name, shape)
        v = self._constants.get(key)
        if v is None:
            v = self._constants[key] = self.broadcast(x, shape, ())
        return v

    def broadcast(self, x: Value, shape: tuple[int, ...], dims: tuple[int, ...]) -> Value:
        """``broadcast_in_dim``: dimension i of `x` becomes dimension ``dims[i]``."""
        out = shaped(shape, x.aval.dtype)
        return self.cast("stablehlo.broadcast_in_dim", x, out, f", dims = {integers(dims)}")

    def reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        return x if x.aval.shape == shape else self.cast("stablehlo.reshape", x, shaped(shape, x.aval.dtype))

    def convert(self, x: Value, dtype) -> Value:
        return x if x.aval.dtype == dtype else self.cast("stablehlo.convert", x, shaped(x.aval.shape, dtype))

    def cast(self, op: str, x: Value, out: ShapedArray, tail: str = "") -> Value:
        """``op x tail : (type) -> type``: the short form of operations that change the type."""
        v = self.fresh(out)
        self.lines.append(f"{v.name} = {op} {x.name}{tail} : ({x.aval.mlir}) -> {out.mlir}{self.location}")
        return v

    def short(self, op: str, operands, out: ShapedArray, tail: str = "") -> Value:
        """``op operands tail : (types) -> type``"""
        v = self.fresh(out)
        self.lines.append(f"{v.name} = {op} {', '.join([x.name for x in operands])}{tail} : "
                          f"({', '.join([x.aval.mlir for x in operands])}) -> {out.mlir}{self.location}")
        return v

    def iota(self, out: ShapedArray, dimension: int) -> Value:
        """The place of each element along a dimension."""
        v = self.fresh(out)
        self.lines.append(f"{v.name} = stablehlo.iota dim = {dimension} : {out.mlir}{self.location}")
        return v

    def parts(self, x: Value) -> tuple[Value, Value]:
        """The real and the imaginary part of a complex value."""
        out = shaped(x.aval.shape, dtypes.part_of(x.aval.dtype))
        return self.cast("stablehlo.real", x, out), self.cast("stablehlo.imag", x, out)

    def compare(self, direction: str, x: Value, y: Value, how: str, out: ShapedArray) -> Value:
        """``compare``: `direction` is EQ, NE, LT, LE, GT or GE; `how` is FLOAT, SIGNED, UNSIGNED or TOTALORDER."""
        return self.short(f"stablehlo.compare {direction},", (x, y), out, f", {how}")

    def call(self, function: str, operands, outs, attrs: str = "") -> list[Value]:
        """Call a private function of the module."""
        results, left = self._results(outs)
        attrs = f" {{{attrs}}}" if attrs else ""
        self.lines.append(f'{left}func.call @{function}({", ".join([x.name for x in operands])}){attrs} : '
                          f'({", ".join([x.aval.mlir for x in operands])}) -> ({", ".join([a.mlir for a in outs])})'
                          f"{self.location}")
        return results


_lists = Memo(4096)  # the few lists of small integers that attributes are made of


def integers(values) -> str:
    """``[1, 2]``"""
    values = tuple(values)
    found = _lists.get(values)
    if found is None:
        found = _lists.keep(values, f"[{', '.join(map(str, values))}]")
    return found


def i64_array(values) -> str:
    """``array<i64: 1, 2>``, the attribute form of a list of integers."""
    values = tuple(values)
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"


def bool_array(values) -> str:
    """``array<i1: true, false>``"""
    values = tuple(values)
    return f"array<i1: {', '.join('true' if v else 'false' for v in values)}>" if values else "array<i1>"


class Module:
    """A module under construction: the public function and the private ones it calls."""
    __slots__ = ("name", "target", "functions", "_taken", "cache", "locations", "callbacks")

    def __init__(self, name: str, target: Target):
        self.name, self.target = symbol(name), target
        self.functions: list[str] = []
        self._taken = {"main"}
        self.cache: dict = {}  # for the lowering walk: what has become a function already
        self.locations: dict[str, str] = {}  # location text -> alias
        self.callbacks: list = []  # Python functions that the program calls by their number

    def unique(self, name: str) -> str:
        """`name` as a symbol nobody else has."""
        base = symbol(name)
        candidate, i = base, 0
        while candidate in self._taken:
            candidate, i = f"{base}_{i}", i + 1
        self._taken.add(candidate)
        return candidate

    def alias(self, location: str) -> str:
        """The short name of a location, defined once at the end of the module."""
        found = self.locations.get(location)
        if found is None:
            found = self.locations[location] = f"#s{len(self.locations)}"
        return found

    def line_of(self, location: str) -> str:
        """``file.py:12`` for what operations have at their end; empty where that is nothing."""
        for text, alias in self.locations.items():
            if location == f" loc({alias})":
                return text.rpartition(":")[0].replace('"', "")
        return ""

    def add_function(self, name: str, block: Block, results: list[Value], *, public: bool = False,
                     arg_attrs: list[str] | None = None) -> None:
        """Write the function whose body is `block`; `arg_attrs` are attribute dictionaries or ''."""
        attrs = arg_attrs or [""] * len(block.args)
        args = ", ".join(f"{a.name}: {a.aval.mlir}{' ' + extra if extra else ''}"
                         for a, extra in zip(block.args, attrs))
        types = ", ".join(v.aval.mlir for v in results)
        body = "".join(f"    {line}\n" for line in block.lines)
        tail = f" {', '.join(v.name for v in results)} : {types}" if results else ""
        self.functions.append(f"  func.func {'public' if public else 'private'} @{name}({args}) -> ({types}) {{\n"
                              f"{body}    func.return{tail}\n  }}\n")

    def text(self) -> str:
        """The module as StableHLO text."""
        locations = "".join(f"{alias} = loc({text})\n" for text, alias in self.locations.items())
        return f"{locations}module @{self.name} {{\n{''.join(reversed(self.functions))}}}\n"


def symbol(name: str) -> str:
    """`name` with everything that cannot stand in an MLIR symbol replaced."""
    cleaned = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name).strip("_")
    return cleaned if cleaned and not cleaned[0].isdigit() else f"f_{cleaned}"
