"""Compiled programs that take mutable references: what they hold goes in, and what they hold afterwards comes out."""
from __future__ import annotations

from ricalco.core.references import Cell
from ricalco.engine import DeviceArray
from ricalco.engine.shim import JaxlibError
from ricalco.jit.eager import as_array, eager
from ricalco.ops.conversion import copy_p
from ricalco.ops.refs import raw_references


class References:
    """The references of a lowered program.

    Attributes
    ----------
    targets : list of Cell or int
        The references that are written to: captured ones, and numbers of argument leaves. What they hold afterwards
        are the last results of the program.
    avals : list of ShapedArray
        The types of those results.
    given : dict of int to int
        From the place of a parameter, which is one of those, to its target: its memory is given to that result.
    """
    __slots__ = ("targets", "avals", "given")

    def __init__(self, targets: list, avals: list, consts: list, kept):
        self.targets, self.avals = targets, avals
        number = {t if isinstance(t, int) else id(t): k for k, t in enumerate(targets)}
        keys = [*[id(c) if c.__class__ is Cell else None for c in consts], *kept]
        self.given = {place: number[key] for place, key in enumerate(keys) if key in number}

    def run(self, compiled, leaves):
        """Run `compiled` on argument leaves, and let the references hold what they hold then."""
        traced = compiled.lowered.traced
        leaves = raw_references(leaves, compiled.consts, traced.fun_name, traced.arg_names)
        compiled._check_donations(leaves)
        try:
            operands = [*compiled.consts, *[leaves[i] if leaves[i].__class__ is Cell else as_array(leaves[i])
                                            for i in compiled.kept]]
        except (TypeError, ValueError, OverflowError) as error:
            raise compiled._bad_argument(leaves, error) from None
        buffers = [_buffer(x, place in self.given) for place, x in enumerate(operands)]
        try:
            outs = compiled.execute(buffers).consume_with_handlers(compiled.handlers)
        except JaxlibError as error:
            raise compiled._failure(buffers, error) from None
        compiled.record.calls += 1
        n = len(outs) - len(self.targets)
        for target, out, aval in zip(self.targets, outs[n:], self.avals):
            (leaves[target] if isinstance(target, int) else target).put(DeviceArray(out, aval))
        for i in compiled.kept:
            if traced.donated[i] and leaves[i].__class__ is DeviceArray:
                leaves[i].delete()
        results = [compiled.wrap(x, a) for x, a in zip(outs[:n], compiled.out_avals)]
        return results[0] if compiled.single else compiled.unflatten(results)


def _buffer(x, given: bool):
    """The buffer of an operand; of a reference whose memory is given away, one that nobody else holds."""
    if x.__class__ is not Cell:
        return x.buffer
    if given and x.shared:
        x.put(eager.process(copy_p, (x.array,), {}))
    return x.array.buffer
