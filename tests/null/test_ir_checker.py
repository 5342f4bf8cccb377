"""What `check_jaxpr` refuses, and how it says so. Each condition is broken once."""
import numpy as np
import pytest

from ricalco.avals import ShapedArray, shaped
from ricalco.ir import ClosedJaxpr, Eqn, Jaxpr, JaxprTypeError, Literal, Var, check_jaxpr
from tests.null.ir_samples import (
    Build,
    add_p,
    aval,
    cond_p,
    double,
    halves_p,
    jit_p,
    literal,
    mul_p,
    odd_p,
    sin_p,
    sine_chain,
)


def good() -> ClosedJaxpr:
    b = Build()
    c, x = b.const(np.ones(3, np.float32)), b.input("float32", 3)
    return b.closed(b(mul_p, b(sin_p, x), b(add_p, x, c)), x, literal(1.0))


def broken(message: str | None, program) -> str:
    with pytest.raises(JaxprTypeError, match=message) as caught:
        check_jaxpr(program)
    return str(caught.value)


def test_good_programs_pass():
    check_jaxpr(good())
    check_jaxpr(good().jaxpr)
    b = Build()
    index, x = b.input("int32"), b.input("float32", 2)
    (y,) = b(cond_p, index, x, branches=(double(2), sine_chain(3, 2)))
    (z,) = b(jit_p, y, name="f", jaxpr=double(2))
    check_jaxpr(b.jaxpr(z))


def test_the_error_is_a_type_error():
    assert issubclass(JaxprTypeError, TypeError)


def test_use_before_definition():
    jaxpr = good().jaxpr
    message = broken("not bound here", jaxpr.replace(eqns=jaxpr.eqns[::-1]))
    assert message.startswith("equation 0, `c:f32[3] = mul d e`: operand 0, of type f32[3], is not bound here")


def test_a_variable_of_another_program():
    assert "output 0, of type f32[], is not bound" in broken(None, Jaxpr([], [], [], [Var(aval())]))


def test_bound_twice():
    jaxpr = good().jaxpr
    broken("equation 3.*result 0, of type .*bound already", jaxpr.replace(eqns=[*jaxpr.eqns, jaxpr.eqns[0]]))
    broken("input 1, of type .*bound already", jaxpr.replace(invars=jaxpr.invars * 2))
    broken("input 0, of type .*bound already", jaxpr.replace(invars=jaxpr.constvars))
    broken("constvar 1, of type .*bound already", jaxpr.replace(constvars=jaxpr.constvars * 2))
    x = Var(aval("float32", 4))
    low = Var(aval("float32", 2))
    broken("result 1, of type .*bound already", Jaxpr([], [x], [Eqn(halves_p, [x], (low, low), {})], []))


def test_declared_types_are_compared_with_inferred_ones():
    x = Var(aval("float32", 3))
    eqn = Eqn(sin_p, [x], (Var(aval("float32", 4)),), {})
    assert ("equation 0, `_:f32[4] = sin a`: result 0 is declared as f32[4], sin infers f32[3]"
            in broken(None, Jaxpr([], [x], [eqn], [])))


def test_weak_types_are_compared_unless_told_otherwise():
    x = Var(aval("float32", 3))
    eqn = Eqn(sin_p, [x], (Var(shaped((3,), np.dtype("float32"), True)),), {})
    jaxpr = Jaxpr([], [x], [eqn], [])
    broken(r"declared as f32\[3\] \(weak\), sin infers f32\[3\]", jaxpr)
    check_jaxpr(jaxpr, weak_types=False)


def test_arity():
    x = Var(aval("float32", 4))
    eqn = Eqn(halves_p, [x], (Var(aval("float32", 2)),), {})
    broken("halves has 2 results, the equation 1", Jaxpr([], [x], [eqn], []))
    broken("refuses its operands or parameters: IndexError", Jaxpr([], [], [Eqn(sin_p, [], (Var(aval()),), {})], []))


def test_parameters():
    x = Var(aval())
    eqn = Eqn(odd_p, [x], (Var(aval()),), {"key": [1]})
    broken("parameter `key` is a list, which has no hash", Jaxpr([], [x], [eqn], []))
    broken("refuses its operands or parameters: TypeError.*unexpected keyword",
           Jaxpr([], [x], [Eqn(sin_p, [x], (Var(aval()),), {"key": 1})], []))


@pytest.mark.parametrize("bad, message", [
    (Literal(np.float64(1), aval()), "of type f32.*of dtype float64"),
    (Literal(1.0, aval()), "of type f32.*a Python float"),
    (Literal(np.ones(2, np.float32), aval("float32", 2)), "not a scalar"),
    (Literal(np.ones(2, np.float32), aval()), "of type f32"),
    (1.0, "a float, neither a variable nor a literal"), (None, "a NoneType")])
def test_literals(bad, message):
    broken("output 0 is .*" + message, Jaxpr([], [], [], [bad]))
    broken("equation 0, .*operand 0 is .*" + message, Jaxpr([], [], [Eqn(sin_p, [bad], (Var(aval()),), {})], []))


def test_constants():
    closed = good()
    broken("there are 1 constvars and 0 values", ClosedJaxpr(closed.jaxpr))
    broken(r"constvar 0 is of type f32\[3\], its value of type f32\[4\]",
           ClosedJaxpr(closed.jaxpr, [np.ones(4, np.float32)]))
    broken(r"its value of type i32\[3\]", ClosedJaxpr(closed.jaxpr, [np.ones(3, np.int32)]))
    check_jaxpr(ClosedJaxpr(closed.jaxpr, [ShapedArray((3,), "float32")]))


def test_programs_within_are_checked():
    b = Build()
    x = b.input("float32", 3)
    inner = good().jaxpr
    bad = ClosedJaxpr(Jaxpr([], inner.invars, inner.eqns[::-1], inner.outvars))
    b(cond_p, literal(0, "int32"), x, branches=(double(3), bad))
    message = broken(None, b.jaxpr())
    assert message.startswith("in `branches` of equation 0 (cond): equation 0, `")


def test_what_is_no_program():
    with pytest.raises(TypeError, match="program must be a Jaxpr or a ClosedJaxpr, got str"):
        check_jaxpr("{ lambda ; . let  in () }")
