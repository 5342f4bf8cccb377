"""Sums of products in Einstein's notation: parsed here, ordered by opt_einsum, computed by `dot_general`."""
from __future__ import annotations

import importlib
from functools import cache

from ricalco.avals.memory import cached
from ricalco.core import Array
from ricalco.numpy.matrices import diagonal
from ricalco.numpy.products import contract, ordered, promoted, strength, summed
from ricalco.numpy.promotion import broadcast_to_shape, check, refuse
from ricalco.ops.structure import aval_of, convert_element_type
from ricalco.tracing import composite

__all__ = ["einsum", "einsum_path"]

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def einsum(subscripts, /, *operands, out=None, optimize="auto", precision=None, preferred_element_type=None,
           out_sharding=None) -> Array:
    """The sum of products of operands that the subscripts describe.

    Parameters
    ----------
    subscripts : str
        ``"ij,jk->ik"``: a letter for each dimension of each operand, and those of the result. Letters that the
        result lacks are summed over. Without ``->`` the result has the letters that occur once, in alphabetical
        order. ``...`` stands for further dimensions, which are broadcast.
        Instead: operands and lists of ints in turn, ``einsum(a, [0, 1], b, [1, 2], [0, 2])``.
    *operands : array
    optimize : str, bool or list of tuple
        How the order of three and more operands is chosen (opt_einsum's names), or the order.
    precision : optional
        See `lax.dot_general`.
    preferred_element_type : dtype-like, optional
        To accumulate in and to return.

    Raises
    ------
    ValueError
        If the subscripts do not fit the operands.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.einsum("ij,j->i", jnp.ones((2, 3)), jnp.arange(3.0)).tolist()
    [3.0, 3.0]
    """
    refuse("einsum", out=out, out_sharding=out_sharding)
    subscripts, operands = _text_form(subscripts, operands)
    check("einsum", *operands)
    shapes = tuple([aval_of(x).shape for x in operands])
    inputs, result = parse(subscripts, tuple(map(len, shapes)))
    _sizes(subscripts, inputs, shapes)
    if len(operands) > 2:
        order = _order(inputs, result, shapes, _frozen(optimize))
    else:
        order = (tuple(range(len(operands))),)
    return _einsum(list(operands), inputs, result, order, precision, preferred_element_type)


def einsum_path(subscripts, /, *operands, optimize="auto"):
    """The order in which `einsum` would take the operands, and a description of it.

    Returns
    -------
    path : list of tuple of int
    info : opt_einsum.contract.PathInfo

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.einsum_path("ij,jk->ik", jnp.ones((2, 3)), jnp.ones((3, 4)))[0]
    [(0, 1)]
    """
    subscripts, operands = _text_form(subscripts, operands)
    check("einsum_path", *operands)
    shapes = [aval_of(x).shape for x in operands]
    return _opt_einsum().contract_path(subscripts, *shapes, optimize=optimize, shapes=True)


@cache
def _opt_einsum():
    # A tenth of a second to import, and most programs do not need it.
    return importlib.import_module("opt_einsum")


def _frozen(optimize):
    if isinstance(optimize, (list, tuple)):
        return tuple([tuple(x) if isinstance(x, (list, tuple)) else x for x in optimize])
    return optimize


# --- the notation -----------------------------------------------------------------------------

def _text_form(subscripts, operands) -> tuple[str, list]:
    """The subscripts as text, and the operands."""
    if isinstance(subscripts, str):
        return subscripts.replace(" ", ""), list(operands)
    arguments = [subscripts, *operands]
    terms, arrays = [], []
    while len(arguments) > 1:
        arrays.append(arguments.pop(0))
        terms.append(_sublist(arguments.pop(0)))
    text = ",".join(terms)
    return (text + "->" + _sublist(arguments[0]) if arguments else text), arrays


def _sublist(labels) -> str:
    if not isinstance(labels, (list, tuple)):
        raise TypeError(f"einsum: expected a list of subscripts after each operand, got {labels!r}")
    return "".join("..." if x is Ellipsis else _LETTERS[x] for x in labels)


@cached(4096)
def parse(subscripts: str, ranks: tuple[int, ...]) -> tuple[tuple[tuple, ...], tuple]:
    """The labels of each operand's dimensions, and those of the result.

    A label is a letter, or for a dimension under an ellipsis its negative place from the right.
    """
    left, arrow, right = subscripts.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"einsum: the subscripts {subscripts!r} describe {len(terms)} operands, "
                         f"and {len(ranks)} are given")
    for character in left.replace("...", "").replace(",", "") + right.replace("...", ""):
        if character not in _LETTERS:
            raise ValueError(f"einsum: {character!r} in {subscripts!r} is not a valid subscript; letters are")
    inputs = tuple([_labels(subscripts, term, rank) for term, rank in zip(terms, ranks)])
    broadcast = sorted({x for labels in inputs for x in labels if isinstance(x, int)})
    found = [x for labels in inputs for x in labels if not isinstance(x, int)]
    if not arrow:
        return inputs, (*broadcast, *sorted(x for x in set(found) if found.count(x) == 1))
    result: list = []
    before, dots, after = right.partition("...")
    for part in (before, dots, after):
        result.extend(broadcast if part == "..." else part)
    if len(set(result)) != len(result):
        raise ValueError(f"einsum: a letter occurs twice in the result of {subscripts!r}")
    unknown = [x for x in result if not isinstance(x, int) and x not in found]
    if unknown:
        raise ValueError(f"einsum: {unknown[0]!r} in the result of {subscripts!r} occurs in no operand")
    return inputs, tuple(result)


def _labels(subscripts: str, term: str, rank: int) -> tuple:
    before, dots, after = term.partition("...")
    named = len(before) + len(after)
    if named > rank or (not dots and named != rank):
        raise ValueError(f"einsum: the term {term!r} of {subscripts!r} has {named} subscripts for an operand of "
                         f"{rank} dimensions")
    return (*before, *range(named - rank, 0), *after) if dots else tuple(before)


def _sizes(subscripts: str, inputs, shapes) -> dict:
    """The size of each label; an error where they differ."""
    sizes: dict = {}
    for labels, shape in zip(inputs, shapes):
        for label, n in zip(labels, shape):
            if sizes.setdefault(label, n) != n:
                if sizes[label] != 1 and n != 1:
                    raise ValueError(f"einsum: the sizes of {label!r} in {subscripts!r} differ: "
                                     f"{sizes[label]} and {n}")
                sizes[label] = max(sizes[label], n)
    return sizes


@cached(1024)
def _order(inputs, result, shapes, optimize) -> tuple[tuple[int, ...], ...]:
    """Which operands to contract, one after the other (opt_einsum's path)."""
    if optimize is False:
        return (tuple(range(len(inputs))),)
    if isinstance(optimize, tuple):
        steps = optimize[1:] if optimize and optimize[0] == "einsum_path" else optimize
        return tuple([tuple(step) for step in steps])
    names: dict = {}
    for label in (x for labels in inputs for x in labels):
        names.setdefault(label, _opt_einsum().get_symbol(len(names)))
    # Under an ellipsis sizes of 1 stand against larger ones, which does not change the best order much.
    text = ",".join("".join(names[x] for x in dict.fromkeys(labels)) for labels in inputs)
    sizes = _sizes(text, inputs, shapes)
    plain = [tuple([sizes[x] for x in dict.fromkeys(labels)]) for labels in inputs]
    text += "->" + "".join(names[x] for x in result)
    path, _ = _opt_einsum().contract_path(text, *plain, shapes=True,
                                          optimize="auto" if optimize is True else optimize)
    return tuple([tuple(step) for step in path])


# --- the computation ----------------------------------------------------------------------------

@composite(static=("inputs", "result", "order", "precision", "preferred_element_type"))
def _einsum(operands, inputs, result, order, precision, preferred_element_type):
    operands, dtype, weak = promoted("einsum", operands, preferred_element_type)
    sizes = _sizes("", inputs, [x.shape for x in operands])
    terms = [_distinct(x, labels) for x, labels in zip(operands, inputs)]
    for step in order:
        chosen = [terms[i] for i in step]
        terms = [t for i, t in enumerate(terms) if i not in step]
        while len(chosen) > 1:
            (a, a_labels), (b, b_labels), *chosen = chosen
            needed = {*result, *(x for _, labels in (*terms, *chosen) for x in labels)}
            if len(chosen) == 0 and not terms:
                out = tuple([x for x in result if x in a_labels or x in b_labels])
            else:
                out = tuple([x for x in dict.fromkeys(a_labels + b_labels) if x in needed])
            chosen.insert(0, (contract(a, a_labels, b, b_labels, out, precision, dtype), out))
        terms.extend(chosen)
    while len(terms) > 1:  # an order that does not name all
        (a, a_labels), (b, b_labels), *terms = terms
        needed = {*result, *(x for _, labels in terms for x in labels)}
        out = tuple([x for x in dict.fromkeys(a_labels + b_labels) if x in needed])
        terms.insert(0, (contract(a, a_labels, b, b_labels, out, precision, dtype), out))
    (x, labels), = terms
    x, labels = summed(convert_element_type(x, dtype, weak), labels, result)
    x = ordered(x, labels, tuple([y for y in result if y in labels]))
    return strength(broadcast_to_shape(x, tuple([sizes[y] for y in result])), weak)


def _distinct(x, labels: tuple) -> tuple[object, tuple]:
    """`x` with the diagonal of dimensions that have one label."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            if x.shape[i] != x.shape[j]:
                raise ValueError(f"einsum: the sizes of {label!r} differ in one operand: {x.shape[i]}, {x.shape[j]}")
            x = diagonal(x, 0, i, j)
            labels = (*[y for k, y in enumerate(labels) if k not in (i, j)], label)
    return x, labels


