"""Special functions: error functions, gamma functions, Bessel functions, and neighbours of floats."""
from __future__ import annotations

import numpy as np

from calco.core import No, Primitive
from calco.ops import families, oracles
from calco.ops.arithmetic import add, mul, neg, square
from calco.ops.exponential import constant, exp
from calco.ops.families import callable_of, elementwise
from calco.ops.structure import NOT_LINEAR
from calco.ops.trigonometric import chlo


def _function(name: str, op: str, derivatives, oracle, arity: int = 1):
    return elementwise(name, None, lower=chlo(op), kinds="f", arity=arity, derivatives=derivatives,
                       oracle=oracles.wide(oracle))


_SLOPE = 2 / np.sqrt(np.pi)  # of erf at 0

erf_p = _function("erf", "erf", [
    lambda g, ans, x: mul(constant(_SLOPE, x), mul(g, exp(neg(square(x)))))], oracles.erf)
erf = callable_of(erf_p, 1, """Elementwise error function.""")

erfc_p = _function("erfc", "erfc", [
    lambda g, ans, x: mul(constant(-_SLOPE, x), mul(g, exp(neg(square(x)))))], oracles.erfc)
erfc = callable_of(erfc_p, 1, """Elementwise ``1 - erf(x)``, exact for large `x`.""")

erf_inv_p = _function("erf_inv", "erf_inv", [
    lambda g, ans, x: mul(constant(1 / _SLOPE, x), mul(g, exp(square(ans))))], oracles.erf_inv)
erf_inv = callable_of(erf_inv_p, 1, """Elementwise inverse of `erf`; NaN outside [-1, 1].""")

lgamma_p = _function("lgamma", "lgamma", [lambda g, ans, x: mul(g, digamma(x))], oracles.log_gamma)
lgamma = callable_of(lgamma_p, 1, """Elementwise logarithm of the absolute value of the gamma function.""")

digamma_p = _function("digamma", "digamma", [lambda g, ans, x: mul(g, polygamma(constant(1, x), x))], oracles.digamma)
digamma = callable_of(digamma_p, 1, """Elementwise derivative of `lgamma`.""")


def _no_order_derivative(name: str, argument: str):
    def derivative(g, ans, *xs):
        raise ValueError(f"{name} has no derivative with respect to its argument {argument}; use stop_gradient on it")
    return derivative


polygamma_p = _function("polygamma", "polygamma", [
    _no_order_derivative("polygamma", "m"),
    lambda g, ans, m, x: mul(g, polygamma(add(m, constant(1, x)), x))], oracles.polygamma, arity=2)
polygamma = callable_of(polygamma_p, 2, """Elementwise derivative of order `m` of `digamma` at `x`: ``polygamma(m, x)``.""")

zeta_p = _function("zeta", "zeta", [
    _no_order_derivative("zeta", "x"),
    lambda g, ans, x, q: mul(g, mul(neg(x), zeta(add(x, constant(1, x)), q)))], oracles.zeta, arity=2)
zeta = callable_of(zeta_p, 2, """Elementwise Hurwitz zeta function: the sum of ``(q + k) ** -x`` over k = 0, 1, ...""")

nextafter_p = Primitive(
    "nextafter", infer=families.elementwise_infer("nextafter", "f"), lower=chlo("next_after"),
    jvp=No("nextafter has no derivative"), transpose=NOT_LINEAR,
    batch=families.elementwise_batch(lambda *xs: nextafter_p.bind(*xs)), oracle=np.nextafter)
nextafter = callable_of(nextafter_p, 2, """Elementwise next representable number after `x1` in the direction of `x2`.""")

__all__ = ["digamma", "digamma_p", "erf", "erf_inv", "erf_inv_p", "erf_p", "erfc", "erfc_p", "lgamma", "lgamma_p",
           "nextafter", "nextafter_p", "polygamma", "polygamma_p", "zeta", "zeta_p"]
