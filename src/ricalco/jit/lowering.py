"""Jaxpr -> StableHLO module text. Walks the equations; each primitive lowers itself."""
from __future__ import annotations

from typing import NamedTuple

from ricalco import hlo
from ricalco.core.effects import needs_token
from ricalco.engine.client import CPU
from ricalco.ir import ClosedJaxpr, Jaxpr, Literal
from ricalco.python.places import printable
from ricalco.reroll import Tokens
from ricalco.tracing import place_of, uncollected


class Lowering(hlo.Module):
    """A module under construction, and what the rules of higher-order primitives ask of the walk."""
    __slots__ = ("_places", "_tokens")

    def __init__(self, name: str, target: hlo.Target):
        super().__init__(name, target)
        self._places: dict[tuple, str] = {}
        self._tokens: Tokens | None = None  # made for the first function

    def location(self, eqn) -> str:
        """`` loc(#sN)`` for the source place of `eqn`, one alias for each instruction."""
        code = eqn.code
        if code is None:
            return ""
        key = (id(code), eqn.lasti)
        found = self._places.get(key)
        if found is None:
            place = place_of(code, eqn.lasti)
            file = printable(place.file).replace("\\", "/").replace('"', "'")
            text = f'"{file}":{place.line}:{place.column + 1}'
            found = self._places[key] = f" loc({self.alias(text)})"
        return found

    def inline(self, block: hlo.Block, closed: ClosedJaxpr, operands: list[hlo.Value]) -> list[hlo.Value]:
        """The equations of `closed` written into `block`; its constants must have been hoisted to operands."""
        if closed.consts:
            raise AssertionError("a program with constants reached the lowering walk")
        return self.walk(block, closed.jaxpr, operands)

    def function(self, closed: ClosedJaxpr, name: str) -> str:
        """The name of the private function with the body `closed`; equal bodies are one function."""
        if self._tokens is None:
            self._tokens = Tokens()
        key = self._tokens.program(closed)
        found = self.cache.get(key)
        if found is None:
            found = self.unique(name)
            self.cache[key] = found
            ordered = needs_token(closed.effects)
            block = hlo.Block(self, arg_avals=[*closed.in_avals, hlo.TOKEN] if ordered else closed.in_avals)
            operands = block.args
            if ordered:
                *operands, block.token = block.args
            results = self.inline(block, closed, operands)
            self.add_function(found, block, [*results, block.token] if ordered else results)
        return found

    def walk(self, block: hlo.Block, jaxpr: Jaxpr, operands: list[hlo.Value]) -> list[hlo.Value]:
        """Lower the equations of `jaxpr`, whose constvars and invars have the values `operands`."""
        env: dict[int, hlo.Value] = {}  # by the id of a variable, or of a literal
        for var, value in zip([*jaxpr.constvars, *jaxpr.invars], operands, strict=True):
            env[id(var)] = value

        def read(atom) -> hlo.Value:
            if atom.__class__ is Literal:
                return block.constant(atom.val, atom.aval)
            return env[id(atom)]

        outer = block.location
        code, lasti = None, -1
        block.location = ""
        for eqn in jaxpr.eqns:
            if eqn.code is not code or eqn.lasti != lasti:  # one line of a door function is many equations
                code, lasti = eqn.code, eqn.lasti
                block.location = self.location(eqn)
            values = []
            for v in eqn.invars:
                value = env.get(id(v))
                if value is None:
                    value = env[id(v)] = block.constant(v.val, v.aval)
                values.append(value)
            outvars = eqn.outvars
            primitive = eqn.primitive
            if primitive.multiple_results:
                outs = primitive.lower(block, [v.aval for v in outvars], *values, **eqn.params)
                for var, value in zip(outvars, outs, strict=True):
                    env[id(var)] = value
            else:
                env[id(outvars[0])] = primitive.lower(block, (outvars[0].aval,), *values, **eqn.params)
        block.location = outer
        return [read(v) for v in jaxpr.outvars]


class LoweredModule(NamedTuple):
    """StableHLO text, and the Python functions that it calls by their number."""
    text: str
    callbacks: tuple


def lower_module(jaxpr: Jaxpr, name: str, arg_attrs: list[str] | None = None,
                 target: hlo.Target = CPU) -> LoweredModule:
    """A module whose ``@main`` takes the constvars of `jaxpr`, then its invars."""
    module = Lowering(name, target)
    block = hlo.Block(module, arg_avals=[v.aval for v in (*jaxpr.constvars, *jaxpr.invars)])
    with uncollected():
        results = module.walk(block, jaxpr, block.args)
        module.add_function("main", block, results, public=True, arg_attrs=arg_attrs)
        return LoweredModule(module.text(), tuple(module.callbacks))
