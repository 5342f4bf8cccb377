"""Mutable references under jvp, grad and vmap, in each other and with jit: against functions without references."""
from __future__ import annotations

import functools

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import lax
from ricalco.test_util import check_grads
from tests.meaning import by_numpy, meaning

XS = jnp.array([1.0, 2.0, 0.5, 3.0])


def direct(x):
    ref = ricalco.new_ref(jnp.zeros(4))
    ref[0] = x[1] * x[2]
    ref[1:3] = x[:2] ** 2
    old = ref.swap(x[3], 2)
    ref.addupdate(x * 2)
    ref[...] *= x
    return jnp.sum(jnp.sin(ref[...])) * old + ref[2]


def direct_pure(x):
    y = jnp.zeros(4).at[0].set(x[1] * x[2]).at[1:3].set(x[:2] ** 2)
    old = y[2]
    y = (y.at[2].set(x[3]) + x * 2) * x
    return jnp.sum(jnp.sin(y)) * old + y[2]


def looped(x):
    acc = ricalco.new_ref(jnp.zeros(4))

    def body(c, ix):
        i, v = ix
        acc[i] = v * acc[i - 1] + v
        return c * v, acc[i]

    c, ys = lax.scan(body, 1.0, (jnp.arange(4), x))
    return jnp.sum(acc[...] ** 2) + c + jnp.sum(ys)


def looped_pure(x):
    acc, c, total = jnp.zeros(4), 1.0, 0.0
    for i in range(4):
        v = x[i] * acc[i - 1] + x[i]
        acc, total, c = acc.at[i].set(v), total + v, c * x[i]
    return jnp.sum(acc ** 2) + c + total


def indexed(x):
    ref = ricalco.new_ref(x)
    ref[np.array([0, 2])] = ref[np.array([3, 3])] * x[:2]
    ref.addupdate(x[:3] ** 2, np.array([1, 1, 3]))
    return jnp.sum(ref[::2] * ref[1::2]) + jnp.sum(ref[np.array([2, 2])])


def indexed_pure(x):
    y = x.at[np.array([0, 2])].set(x[np.array([3, 3])] * x[:2]).at[np.array([1, 1, 3])].add(x[:3] ** 2)
    return jnp.sum(y[::2] * y[1::2]) + jnp.sum(y[np.array([2, 2])])


def called(x):
    ref = ricalco.new_ref(x)

    @ricalco.jit
    def scale(r, s):
        r[...] *= s
        return r[0]

    first = scale(ref, x[1])
    return first * scale(ref, x[2]) + jnp.sum(ricalco.freeze(ref))


def called_pure(x):
    y = x * x[1]
    z = y * x[2]
    return y[0] * z[0] + jnp.sum(z)


def branched(x):
    ref = ricalco.new_ref(x)
    lax.cond(x[0] > 0.6, lambda: ref.set(x[1] * x[2], 0), lambda: ref.addupdate(x[0] ** 3, 1))
    return jnp.sum(ref[...] ** 2)


def branched_pure(x):
    return jnp.where(x[0] > 0.6, jnp.sum(x.at[0].set(x[1] * x[2]) ** 2), jnp.sum(x.at[1].add(x[0] ** 3) ** 2))


def counted(x):
    """A reference to integers beside one to floats."""
    n, total = ricalco.new_ref(0), ricalco.new_ref(0.0)

    def body(c, v):
        n[...] += 1
        total[...] += v * n[...]
        return c, None

    lax.scan(body, (), x)
    return total[...] * n[...]


def counted_pure(x):
    return jnp.sum(x * jnp.arange(1.0, 5.0)) * 4


FUNCTIONS = {"direct": (direct, direct_pure), "looped": (looped, looped_pure), "indexed": (indexed, indexed_pure),
             "called": (called, called_pure), "branched": (branched, branched_pure), "counted": (counted, counted_pure)}
BATCH = jnp.stack([XS, XS * 0.5, -XS])
TRANSFORMED = {
    "value": lambda f, x, b: f(x), "jit": lambda f, x, b: ricalco.jit(f)(x),
    "jvp": lambda f, x, b: ricalco.jvp(f, (x,), (x + 1,)),
    "jvp of jit": lambda f, x, b: ricalco.jvp(ricalco.jit(f), (x,), (x + 1,)),
    "jit of jvp": lambda f, x, b: ricalco.jit(lambda x: ricalco.jvp(f, (x,), (x + 1,)))(x),
    "grad": lambda f, x, b: ricalco.grad(f)(x), "grad of jit": lambda f, x, b: ricalco.grad(ricalco.jit(f))(x),
    "jit of grad": lambda f, x, b: ricalco.jit(ricalco.grad(f))(x),
    "linearize": lambda f, x, b: ricalco.linearize(f, x)[1](x), "vjp": lambda f, x, b: ricalco.vjp(f, x)[1](2.0),
    "grad of grad": lambda f, x, b: ricalco.grad(lambda x: jnp.sum(ricalco.grad(f)(x) ** 2))(x),
    "forward over reverse": lambda f, x, b: ricalco.jvp(ricalco.grad(f), (x,), (x,)),
    "hessian": lambda f, x, b: ricalco.jit(ricalco.hessian(f))(x),
    "vmap": lambda f, x, b: ricalco.vmap(f)(b), "vmap of jit": lambda f, x, b: ricalco.vmap(ricalco.jit(f))(b),
    "jit of vmap": lambda f, x, b: ricalco.jit(ricalco.vmap(f))(b),
    "vmap of grad": lambda f, x, b: ricalco.vmap(ricalco.grad(f))(b),
    "grad of vmap": lambda f, x, b: ricalco.grad(lambda b: jnp.sum(ricalco.vmap(f)(b)))(b),
    "vmap axis": lambda f, x, b: ricalco.vmap(f, in_axes=1)(b.T),
    "vmap of vmap": lambda f, x, b: ricalco.vmap(ricalco.vmap(f))(jnp.stack([b, b + 1])),
    "checkpoint": lambda f, x, b: ricalco.grad(ricalco.checkpoint(f))(x),
}


@functools.cache
def compiled(name):
    """All transforms as one program, one compilation of which costs less than those of the operations of all."""
    f = FUNCTIONS[name][0]
    return ricalco.jit(lambda x, b: {key: transform(f, x, b) for key, transform in TRANSFORMED.items()})(XS, BATCH)


@pytest.mark.parametrize("transform", TRANSFORMED)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_as_without_references(name, transform):
    function, pure = [functools.partial(TRANSFORMED[transform], f) for f in FUNCTIONS[name]]
    want = meaning(pure, XS, BATCH)
    for got in (by_numpy(function)(XS, BATCH), compiled(name)[transform],
                *([function(XS, BATCH)] if transform in ("value", "jit", "grad of jit", "vmap") else [])):
        for x, y in zip(ricalco.tree.leaves(got), want, strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_finite_differences(name):
    with ricalco.enable_x64(True):
        by_numpy(check_grads)(FUNCTIONS[name][0], (np.array([1.1, 0.7, 0.4, 1.3]),), order=2, modes=("fwd", "rev"))


def test_a_value_that_is_overwritten_has_no_gradient():
    def f(x):
        ref = ricalco.new_ref(x)
        ref[...] = jnp.float32(3.0) * 1
        return ref[...] * 2

    assert ricalco.grad(f)(5.0).item() == 0.0


def test_the_gradient_of_a_closed_over_reference_that_is_read_is_none_of_its():
    ref = ricalco.new_ref(3.0)
    assert ricalco.grad(lambda x: x * ref[...])(2.0).item() == 3.0
    assert ricalco.grad(ricalco.jit(lambda x, r: x * r[...]))(2.0, ref).item() == 3.0
    assert ricalco.grad(lambda x: lax.fori_loop(0, 2, lambda i, c: c * ref[...], x))(2.0).item() == 9.0


def test_a_value_that_is_not_differentiated_is_written_to_a_reference_from_outside():
    count = ricalco.new_ref(0)
    seen = ricalco.new_ref(0.0)

    def f(x):
        count[...] += 1
        seen[...] = lax.stop_gradient(x)
        return x * 2

    for g in (ricalco.grad(f), ricalco.grad(ricalco.jit(f)), ricalco.jit(ricalco.grad(f))):
        g(5.0)
    assert count[...].item() == 3 and seen[...].item() == 5.0


LINE = r"test_refs_transforms.py:\d+: "


@pytest.mark.parametrize("write", [lambda r, x: r.set(x), lambda r, x: r.swap(x), lambda r, x: r.addupdate(x),
                                   lambda r, x: lax.cond(True, lambda: r.set(x), lambda: None),
                                   lambda r, x: ricalco.jit(lambda y: r.set(y))(x)])
@pytest.mark.parametrize("transform", [lambda f: ricalco.grad(f)(2.0), lambda f: ricalco.jvp(f, (2.0,), (1.0,)),
                                       lambda f: ricalco.jit(ricalco.grad(f))(2.0)])
def test_a_differentiated_value_written_outside_is_refused_with_the_line(write, transform):
    ref = ricalco.new_ref(1.0)
    with pytest.raises(ValueError, match=LINE + r"a value that is being differentiated was (written|added) to a "
                                                r"reference of type Ref\{f32\[\]\} from outside"):
        transform(lambda x: (write(ref, x), x)[1])


@pytest.mark.parametrize("write", [lambda r, x: r.set(x, 0), lambda r, x: r.addupdate(x, 0),
                                   lambda r, x: lax.cond(True, lambda: r.set(x, 1), lambda: None)])
def test_a_mapped_value_written_to_a_shared_reference_is_refused_with_the_line(write):
    ref = ricalco.new_ref(jnp.zeros(3))
    for f in (lambda x: write(ref, x), ricalco.jit(lambda x: write(ref, x))):
        with pytest.raises(ValueError, match=LINE + "a value that differs between the elements of a vmap was"):
            ricalco.vmap(f)(jnp.arange(2.0))


def test_a_shared_reference_read_and_written_with_what_does_not_differ():
    ref = ricalco.new_ref(jnp.zeros(3))

    def f(x):
        ref[1] = 4.0
        return ref[1] * x, ref[(x > 0).astype(int)]

    out = ricalco.vmap(f)(jnp.array([0.0, 2.0]))
    assert [x.tolist() for x in out] == [[0.0, 8.0], [0.0, 4.0]] and ref[...].tolist() == [0.0, 4.0, 0.0]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("jit", [False, True])
def test_mapped_references_as_arguments(axis, jit):
    host = np.arange(6, dtype=np.float32).reshape(2, 3)
    ref = ricalco.new_ref(jnp.asarray(host))

    def f(r, x, i):
        r[i] = x
        r.addupdate(1.0, 0)
        return r[...], r[1]

    n = host.shape[axis]
    g = ricalco.vmap(f, in_axes=(axis, 0, 0))
    x, i = jnp.arange(n) + 10.0, jnp.arange(n) % 2
    rows, seconds = (ricalco.jit(g) if jit else g)(ref, x, i)
    want = np.moveaxis(host.copy(), axis, 0)
    for k in range(n):
        want[k, k % 2] = 10 + k
        want[k, 0] += 1
    np.testing.assert_array_equal(rows, want)
    np.testing.assert_array_equal(seconds, want[:, 1])
    np.testing.assert_array_equal(ref[...], np.moveaxis(want, 0, axis))


def test_a_reference_passed_whole_to_a_mapped_function():
    ref = ricalco.new_ref(jnp.arange(3.0))
    assert ricalco.vmap(lambda r, i: r[i], in_axes=(None, 0))(ref, jnp.array([2, 0])).tolist() == [2.0, 0.0]


@pytest.mark.parametrize("transform", [
    lambda f, r: ricalco.grad(f)(r), lambda f, r: ricalco.value_and_grad(f)(r), lambda f, r: ricalco.vjp(f, r),
    lambda f, r: ricalco.linearize(f, r), lambda f, r: ricalco.jvp(f, (r,), (r,)), lambda f, r: ricalco.jacfwd(f)(r)])
def test_derivatives_in_a_reference_are_refused(transform):
    with pytest.raises(TypeError, match=LINE + r".*is a mutable reference of type Ref\{f32\[\]\}; pass what it holds"):
        transform(lambda r: r[...], ricalco.new_ref(1.0))


def test_jaxprs_of_transformed_functions_are_printed_and_read_back():
    for closed in (ricalco.make_jaxpr(ricalco.vmap(looped))(BATCH), ricalco.make_jaxpr(ricalco.grad(direct))(XS),
                   ricalco.make_jaxpr(lambda x: ricalco.jvp(called, (x,), (x,)))(XS)):
        assert "new_ref" in str(closed)
        assert str(ricalco.jaxprs.parse(str(closed))) == str(closed)


def test_linear_transpose():
    scale, log = ricalco.new_ref(3.0), ricalco.new_ref(0.0)

    def f(x):
        ref = ricalco.new_ref(jnp.zeros(2))
        ref[0] = x * 2
        ref.addupdate(jnp.full(2, x * scale[...]))
        return ref[...]

    def g(x):
        log[...] = x
        return x

    f_sum = lambda x: jnp.sum(f(x))  # noqa: E731
    assert ricalco.linear_transpose(f_sum, 1.0)(1.0)[0].item() == ricalco.grad(f_sum)(1.0).item() == 8.0
    with pytest.raises(ValueError, match="linear_transpose: the function writes to a reference from outside"):
        ricalco.linear_transpose(g, 1.0)
    with pytest.raises(TypeError, match="is a mutable reference"):
        ricalco.linear_transpose(lambda r: r[...], log)


# --- carrying cotangents out ------------------------------------------------------------------------

@functools.partial(ricalco.custom_vjp, nondiff_argnums=0)
def tap(ref, x):
    """`x`; on the way back its cotangent is added to what `ref` holds."""
    return x


tap.defvjp(lambda ref, x: (x, None), lambda ref, _, ct: (ref.addupdate(ct), (ct,))[1])


def tapped(x, ref):
    return tap(ref, jnp.sin(x)) * 2


def tapped_in_a_loop(x, ref):
    return lax.scan(lambda c, _: (tap(ref, c * 2), None), x, None, length=3)[0]


@pytest.mark.parametrize("function, want", [(tapped, 2.0), (tapped_in_a_loop, 1.0 + 2.0 + 4.0)])
@pytest.mark.parametrize("transform", [ricalco.grad, lambda f: ricalco.jit(ricalco.grad(f)),
                                       lambda f: lambda x, r: ricalco.vjp(lambda x: f(x, r), x)[1](1.0)])
def test_a_cotangent_is_written_to_a_reference(function, want, transform):
    ref = ricalco.new_ref(0.0)
    function(1.0, ref)
    assert ref[...].item() == 0.0
    transform(function)(1.0, ref)
    assert ref[...].item() == want
    transform(function)(1.0, ref)
    assert ref[...].item() == 2 * want


def test_a_cotangent_is_written_to_a_reference_that_is_closed_over():
    ref = ricalco.new_ref(0.0)

    @ricalco.custom_vjp
    def tap_closed(x):
        return x

    tap_closed.defvjp(lambda x: (x, None), lambda _, ct: (ref.addupdate(ct), (ct,))[1])
    for f in (ricalco.grad(lambda x: tap_closed(x) * 3), ricalco.jit(ricalco.grad(lambda x: tap_closed(x) * 3)),
              ricalco.grad(ricalco.jit(lambda x: tap_closed(x) * 3))):
        f(1.0)
    assert ref[...].item() == 9.0


def test_a_custom_jvp_function_takes_no_reference_from_outside_into_a_program():
    ref = ricalco.new_ref(3.0)

    @ricalco.custom_jvp
    def f(x):
        return x * ref[...]

    f.defjvps(lambda t, ans, x: t)
    assert f(2.0).item() == 6.0
    with pytest.raises(NotImplementedError, match=LINE + "custom_jvp_call cannot take a reference; read it before"):
        ricalco.jit(f)(2.0)
