"""The operations on mutable references, as primitives, and what each does to the array inside (`refs.py` has `Ref`).

The operations are the only ones whose result depends on when they run. They live in programs until those are
discharged (`transforms/discharge.py`): then the array inside is a value like any other, by the functions `read`,
`written` and `added` here.
"""
from __future__ import annotations

from ricalco.avals import ShapedArray, dtypes, options, tangent_aval
from ricalco.avals.memory import Memo
from ricalco.avals.references import RefAval
from ricalco.core import No, Primitive, Zero, eager_trace, errors, state
from ricalco.core.effects import REF
from ricalco.core.references import Cell
from ricalco.ops import reference_index as indexing
from ricalco.ops.structure import aval_of, convert_element_type, instantiate, move_dim, with_batch_dim
from ricalco.tracing import place_of, record_program, recorder, user_frame


def here() -> str:
    """The user's line that is running, as the start of a message."""
    trace = recorder()
    if trace is not None:
        code, lasti = trace.here()
    else:
        frame = user_frame()
        code, lasti = frame.f_code, frame.f_lasti
    place = place_of(code, lasti)
    return f"{place}: " if place is not None else ""


# --- what the operations do to the array inside ---------------------------------------------------

_programs = Memo(8192)


def _recorded(what: str, function, avals: tuple, index: tuple):
    """The program of `function` on arrays of these types, made once."""
    key = (what, avals, index, options.thread.current)
    found = _programs.get(key)
    if found is None:
        found = _programs.keep(key, record_program(what, lambda *xs: [function(xs, index)], avals))
    return found


def _run(what: str, function, args: list, index: tuple):
    program = _recorded(what, function, tuple([aval_of(x) for x in args]), index)
    return state.trace.apply(program, args)[0]


def _read(xs, index):
    return indexing.read(xs[0], index, xs[1:])


def _write(xs, index):
    aval = aval_of(xs[0])
    return convert_element_type(indexing.write(xs[0], xs[1], index, xs[2:]), aval.dtype, aval.weak_type)


def _add(xs, index):
    aval = aval_of(xs[0])
    return convert_element_type(indexing.add_into(xs[0], xs[1], index, xs[2:]), aval.dtype, aval.weak_type)


def read(x, index: tuple, operands) -> object:
    """The part of the array `x` at an index."""
    return x if not index else _run("get", _read, [x, *operands], index)


def written(x, value, index: tuple, operands):
    """The array `x` with `value` at an index."""
    aval = aval_of(x)
    if not index and aval_of(value) is aval:
        return value
    return _run("set", _write, [x, value, *operands], index)


def added(x, value, index: tuple, operands):
    """The array `x` with `value` added at an index."""
    return _run("addupdate", _add, [x, value, *operands], index)


def rewrite(cell: Cell, primitive, value, index: tuple, operands) -> None:
    """Write to (or add to) what a reference holds outside of every trace."""
    what, function = ("addupdate", _add) if primitive is addupdate_p else ("set", _write)
    avals = tuple([cell.aval.inner, aval_of(value), *[aval_of(x) for x in operands]])
    eager_trace().rewrite(cell, _recorded(what, function, avals, index), [value, *operands])


def part_aval(aval: RefAval, index: tuple, operands: tuple) -> ShapedArray:
    """The type of the part at an index whose arrays are of the types `operands`."""
    if not index:
        return aval.inner
    return _recorded("get", _read, (aval.inner, *operands), index).jaxpr.out_avals[0]


# --- the primitives ---------------------------------------------------------------------------------

_NO_LOWERING = No("programs are discharged of their references before they are lowered")
_NO_TRANSPOSE = No("derivatives are discharged of their references before they are transposed")
_NO_ORACLE = No("a reference has no meaning in NumPy")


def _effects(**params):
    return _REF


_REF = frozenset({REF})


def _is_ref(name: str, aval) -> RefAval:
    if aval.__class__ is not RefAval:
        raise TypeError(f"{name}: the operand must be a reference, got {aval.short}")
    return aval


def _has_tangent(aval) -> bool:
    return dtypes.kind(aval.dtype) in "fc"


def _new_ref_infer(x):
    return [RefAval(x)]


def _new_ref_jvp(primals, tangents):
    x, = primals
    ref, = new_ref_p.bind(x)
    if not _has_tangent(aval_of(x)):
        return [ref], tangents
    return [ref], new_ref_p.bind(instantiate(tangents[0]))


def _new_ref_linearize(trace, primals, tangents, params):
    """The tangent's reference belongs to the linear program even where the tangent is zero: it is written to later."""
    x, = primals
    ref, = new_ref_p.bind(x)
    aval = aval_of(x)
    if not _has_tangent(aval):
        return [ref], tangents
    trace.references = True
    return [ref], trace.record(new_ref_p, {}, [RefAval(tangent_aval(aval))], [trace.read(instantiate(tangents[0]))])


def _new_ref_batch(size, args, dims):
    """Batched even where the value is not: what is written later may be."""
    x = with_batch_dim(args[0], dims[0], size)
    return new_ref_p.bind(x), [0]


new_ref_p = Primitive("new_ref", infer=_new_ref_infer, lower=_NO_LOWERING, jvp=_new_ref_jvp,
                      linearize=_new_ref_linearize, transpose=_NO_TRANSPOSE, batch=_new_ref_batch, oracle=_NO_ORACLE,
                      multiple_results=True, effects=_effects)


def _get_infer(ref, *operands, index):
    return part_aval(_is_ref("get", ref), index, operands)


def _get_jvp(primals, tangents, *, index):
    out = get_p.bind(*primals, index=index)
    if isinstance(tangents[0], Zero):
        return out, Zero(tangent_aval(aval_of(out)))
    return out, get_p.bind(tangents[0], *primals[1:], index=index)


def _get_batch(size, args, dims, *, index):
    return get_p.bind(*args, index=index), dims[0]


get_p = Primitive("get", infer=_get_infer, lower=_NO_LOWERING, jvp=_get_jvp, transpose=_NO_TRANSPOSE,
                  batch=_get_batch, oracle=_NO_ORACLE, effects=_effects)


def _check_value(name: str, ref: RefAval, value: ShapedArray, index: tuple, operands) -> ShapedArray:
    part = part_aval(_is_ref(name, ref), index, operands)
    if value.shape != part.shape or value.dtype != part.dtype:
        raise TypeError(f"{name}: a value of type {value.short} does not fit where {ref.short} has {part.short}")
    return part


def _swap_infer(ref, value, *operands, index):
    return _check_value("swap", ref, value, index, operands)


def _refuse_outside(primals, what: str) -> None:
    """A tangent that is written where there is no reference for tangents would be lost."""
    if _has_tangent(primals[0].aval):
        raise ValueError(f"{here()}a value that is being differentiated was {what} a reference of type "
                         f"{primals[0].aval.short} from outside of the differentiated function, which has no tangent. "
                         "Make the reference inside the function (ricalco.new_ref), or write lax.stop_gradient(value).")


def _swap_jvp(primals, tangents, *, index):
    operands = primals[2:]
    dot, value_dot = tangents[:2]
    if isinstance(dot, Zero):
        if not isinstance(value_dot, Zero):
            _refuse_outside(primals, "written to")
        out = swap_p.bind(*primals, index=index)
        return out, Zero(tangent_aval(aval_of(out)))
    return swap_p.bind(*primals, index=index), swap_p.bind(dot, instantiate(value_dot), *operands, index=index)


def _refuse_batched(ref, what: str) -> None:
    raise ValueError(f"{here()}a value that differs between the elements of a vmap was {what} a reference of type "
                     f"{aval_of(ref).short} that they all share. Make the reference inside the mapped function "
                     "(ricalco.new_ref), or pass it as a mapped argument.")


def _swap_batch(size, args, dims, *, index):
    ref, value = args
    if dims[0] is None:
        _refuse_batched(ref, "written to")
    value = move_dim(with_batch_dim(value, dims[1], size), 0, dims[0])
    return swap_p.bind(ref, value, index=index), dims[0]


swap_p = Primitive("swap", infer=_swap_infer, lower=_NO_LOWERING, jvp=_swap_jvp, transpose=_NO_TRANSPOSE,
                   batch=_swap_batch, oracle=_NO_ORACLE, effects=_effects)


def _addupdate_infer(ref, value, *operands, index):
    _check_value("addupdate", ref, value, index, operands)
    return []


def _addupdate_jvp(primals, tangents, *, index):
    operands = primals[2:]
    dot, value_dot = tangents[:2]
    if isinstance(dot, Zero) and not isinstance(value_dot, Zero):
        _refuse_outside(primals, "added to")
    addupdate_p.bind(*primals, index=index)
    if not isinstance(dot, Zero) and not isinstance(value_dot, Zero):
        addupdate_p.bind(dot, value_dot, *operands, index=index)
    return [], []


def _addupdate_batch(size, args, dims, *, index):
    ref, value = args
    if dims[0] is None:
        _refuse_batched(ref, "added to")
    addupdate_p.bind(ref, move_dim(with_batch_dim(value, dims[1], size), 0, dims[0]), index=index)
    return [], []


addupdate_p = Primitive("addupdate", infer=_addupdate_infer, lower=_NO_LOWERING, jvp=_addupdate_jvp,
                        transpose=_NO_TRANSPOSE, batch=_addupdate_batch, oracle=_NO_ORACLE, multiple_results=True,
                        effects=_effects)


def _freeze_infer(ref):
    return _is_ref("freeze", ref).inner


def _freeze_jvp(primals, tangents):
    out = freeze_p.bind(*primals)
    if isinstance(tangents[0], Zero):
        return out, Zero(tangent_aval(aval_of(out)))
    return out, freeze_p.bind(*tangents)


freeze_p = Primitive("freeze", infer=_freeze_infer, lower=_NO_LOWERING, jvp=_freeze_jvp, transpose=_NO_TRANSPOSE,
                     batch=lambda size, args, dims: (freeze_p.bind(*args), dims[0]), oracle=_NO_ORACLE,
                     effects=_effects)

REFERENCE_PRIMITIVES = frozenset({new_ref_p, get_p, swap_p, addupdate_p, freeze_p})


def on_the_whole(primitive, args, index: tuple):
    """A read or write of a part as a read or write of everything, between which the part is ordinary operations."""
    ref, *rest = args
    whole = get_p.bind(ref, index=())
    if primitive is get_p:
        return read(whole, index, rest)
    value, *operands = rest
    if primitive is addupdate_p:
        swap_p.bind(ref, added(whole, value, index, operands), index=())
        return []
    swap_p.bind(ref, written(whole, value, index, operands), index=())
    return read(whole, index, operands)


def on_cells(primitive, args, params: dict):
    """A reference operation outside of every trace: done now."""
    if primitive is new_ref_p:
        return [Cell(args[0])]
    cell, *rest = args
    if cell.__class__ is not Cell:
        raise errors.UnexpectedTracerError(cell)
    if primitive is freeze_p:
        return cell.lend()
    index = params["index"]
    if primitive is get_p:
        return read(cell.array, index, rest) if index else cell.lend()
    array, (value, *operands) = cell.array, rest
    if primitive is addupdate_p:
        rewrite(cell, primitive, value, index, operands)
        return []
    if not index:
        cell.array, cell.shared = written(array, value, (), ()), True
        return array
    old = read(array, index, operands)
    rewrite(cell, primitive, value, index, operands)
    return old
