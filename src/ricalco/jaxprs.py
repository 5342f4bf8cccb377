"""Programs as text and back: parse, check, evaluate, summarise."""
from __future__ import annotations

import inspect
from collections.abc import Sequence

from ricalco import lax
from ricalco.control.branches import cond, select
from ricalco.control.callbacks import functions, printing
from ricalco.control.calls import call, remat
from ricalco.control.calls import policies as checkpoint_policies
from ricalco.control.custom import batching, closure_convert, jvp, solves, vjp
from ricalco.core import Primitive
from ricalco.ir import ClosedJaxpr, Literal, Summary, check_jaxpr, rewrite
from ricalco.ir import evaluate as _evaluate
from ricalco.ir import parse_jaxpr as _parse
from ricalco.ops import arithmetic, conversion, families, gather, indices, references, structure
from ricalco.python.doors import door as _door
from ricalco.reroll import writing

__all__ = ["Literal", "PRIMITIVES", "check", "dce", "evaluate", "parse", "summary"]  # noqa: RUF022
__dir__ = __all__.copy

# Every primitive, by the name that programs print.
PRIMITIVES: dict[str, Primitive] = {
    p.name: p for module in (lax, call, remat, cond, select, batching, closure_convert, jvp, vjp, functions, printing,
                             conversion, families, references, structure, writing)
    for p in vars(module).values() if isinstance(p, Primitive)}
# The records and enumerations that parameters hold.
_RECORDS = {name: value for module in (arithmetic, checkpoint_policies, gather, indices, lax, solves)
            for name, value in vars(module).items()
            if inspect.isclass(value) and value.__module__.startswith("ricalco.")}


def parse(text: str, consts: Sequence = ()) -> ClosedJaxpr:
    """The program that `text` prints, checked.

    Parameters
    ----------
    text : str
        What ``str(jaxpr)`` gives.
    consts : sequence of arrays
        The values of the captured arrays, in the order of the text. Without them the program can be
        printed and checked, but not run.

    Raises
    ------
    JaxprSyntaxError
        With line and column.
    JaxprTypeError
        If an equation's declared type is not the one that follows from its operands.

    Examples
    --------
    >>> from ricalco import jaxprs
    >>> program = jaxprs.parse("{ lambda ; a:f32[2]. let b:f32[2] = mul a 2.0:f32[] in (b,) }")
    >>> import numpy as np
    >>> jaxprs.evaluate(program, np.ones(2, "float32"))[0].tolist()
    [2.0, 2.0]
    """
    closed = _parse(text, PRIMITIVES, consts, names=_RECORDS)
    check_jaxpr(closed, weak_types=False)
    return closed


def check(program: ClosedJaxpr) -> None:
    """Raise `JaxprTypeError` unless every variable is defined once, before its use, at its inferred type."""
    check_jaxpr(program)


def evaluate(program: ClosedJaxpr, *args) -> list:
    """The outputs of `program` on these arrays, equation by equation.

    Examples
    --------
    >>> import ricalco
    >>> from ricalco import jaxprs
    >>> jaxprs.evaluate(ricalco.make_jaxpr(lambda x: x + 1)(1.0), 2.0)[0].item()
    3.0
    """
    return _evaluate(program.jaxpr, program.consts, *args)


def dce(program: ClosedJaxpr) -> ClosedJaxpr:
    """`program` without the equations that no output needs; its inputs stay."""
    return rewrite.dce(program, keep_inputs=True)[0]


def summary(program: ClosedJaxpr) -> Summary:
    """The equations of `program` by primitive, by line of the source and by nesting.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> from ricalco import jaxprs
    >>> found = jaxprs.summary(ricalco.make_jaxpr(lambda x: jnp.sin(x) + jnp.sin(x))(1.0))
    >>> {name: count.equations for name, count in found.by_primitive.items()}
    {'sin': 2, 'add': 1}
    """
    return program.summary()

__getattr__, __dir__ = _door(globals())
