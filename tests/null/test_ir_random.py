"""Random programs: print, parse, check and every pass agree on what they mean."""
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ricalco.ir import (
    ClosedJaxpr,
    DebugInfo,
    check_jaxpr,
    dce,
    evaluate_reference,
    hoist,
    inline_calls,
    inputs_to_constants,
    parse_jaxpr,
    split,
    subjaxprs,
    substitute,
)
from ricalco.ir.rewrite import with_new_variables
from tests.null.ir_samples import (
    NAMES,
    PRIMITIVES,
    Build,
    Mode,
    Window,
    add_p,
    cond_p,
    halves_p,
    jit_p,
    literal,
    mul_p,
    neg_p,
    odd_p,
    show_p,
    sin_p,
    sub_p,
    sum_p,
)

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-99, 99), st.floats(allow_nan=False), st.text(max_size=5),
              st.sampled_from([Mode.CLIP, np.dtype("float32"), Window((1,)), 1 - 2j, "None", "f", "float32"])),
    lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)
NUMBERS = st.sampled_from([0.0, -0.0, 1.0, -2.5, 0.1, 3e-7])


@st.composite
def programs(draw, inputs=None, depth=2) -> ClosedJaxpr:
    """A closed program on float32 vectors of length 4 and scalars; `inputs` vectors go in."""
    b = Build()
    values = [b.input("float32", 4) for _ in range(draw(st.integers(1, 3)) if inputs is None else inputs)]
    known: list[ClosedJaxpr] = []
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["unary", "binary", "binary", "literal", "sum", "const", "show", "odd", "halves",
                                     "call", "again", "cond"]))
        x, y = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        if kind == "unary":
            values.append(b(draw(st.sampled_from([sin_p, neg_p])), x))
        elif kind == "binary":
            values.append(b(draw(st.sampled_from([add_p, mul_p, sub_p])), x, y))
        elif kind == "literal":
            values.append(b(mul_p, x, literal(draw(NUMBERS))))
        elif kind == "sum":
            values.append(b(add_p, x, b(sum_p, y, axes=(0,))))
        elif kind == "const":
            values.append(b(add_p, b.const(np.arange(4, dtype=np.float32)), x))
        elif kind == "show":
            b(show_p, x, text=draw(st.text(max_size=4)))
        elif kind == "odd":
            values.append(b(odd_p, x, k=draw(VALUES)))
        elif kind == "halves":
            halves = b(halves_p, x)
            values.append(b(add_p, x, b(sum_p, draw(st.sampled_from(halves)), axes=(0,))))
        elif depth:
            if kind == "call" or not known:
                known.append(draw(programs(1, depth - 1)))
            inner = draw(st.sampled_from(known))
            if kind == "cond":
                same = [p for p in known if [a.strong for a in p.out_avals] == [a.strong for a in inner.out_avals]]
                outs = b(cond_p, literal(draw(st.integers(0, 1)), "int32"), x,
                         branches=(inner, draw(st.sampled_from(same))))
            else:
                outs = b(jit_p, x, name=draw(st.sampled_from(["f", "g", "<lambda>", "a b"])), jaxpr=inner)
            values += [v for v in outs if v.aval.shape == (4,)]
    outs = draw(st.lists(st.sampled_from(values), max_size=3))
    if depth == 2 and draw(st.booleans()):
        outs.append(literal(draw(NUMBERS)))
    return b.closed(*outs)


def within(closed: ClosedJaxpr) -> list[ClosedJaxpr]:
    """The program and all programs inside it, once each."""
    found = {id(closed): closed}
    todo = [closed]
    while todo:
        for eqn in todo.pop().eqns:
            new = {id(p): p for p in subjaxprs(eqn.params) if id(p) not in found}
            found.update(new)
            todo += new.values()
    return list(found.values())


def mean(closed: ClosedJaxpr, args=None):
    """The outputs, on fixed inputs."""
    rng = np.random.default_rng(0)
    args = [rng.normal(size=a.shape).astype(a.dtype) for a in closed.in_avals] if args is None else args
    return evaluate_reference(closed.jaxpr, closed.consts, *args)


def same(got, want):
    assert [x.tobytes() for x in got] == [x.tobytes() for x in want]




@settings(max_examples=60, deadline=None)
@given(programs(), st.sampled_from([1, 30, 80, 500]), st.booleans())
def test_parsing_undoes_printing(closed, width, jax):
    check_jaxpr(closed)
    # JAX calls the unused results of a call `_` inside of it too: such text cannot be read.
    jax = jax and not any(eqn.primitive is jit_p for p in within(closed) for eqn in p.eqns)
    text = closed.pretty_print(width=width, jax=jax)
    again = parse_jaxpr(text, PRIMITIVES, names=NAMES)
    assert again.pretty_print(width=width, jax=jax) == text
    check_jaxpr(again)


@settings(max_examples=40, deadline=None)
@given(programs())
def test_a_parsed_program_means_the_same(closed):
    count = sum(len(p.jaxpr.constvars) for p in within(parse_jaxpr(str(closed), PRIMITIVES, names=NAMES)))
    again = parse_jaxpr(str(closed), PRIMITIVES, [np.arange(4, dtype=np.float32)] * count, NAMES)
    same(mean(again), mean(closed))


@settings(max_examples=60, deadline=None)
@given(programs(), st.data())
def test_passes_keep_the_meaning(closed, data):
    before, want = str(closed), mean(closed)
    live, used = dce(closed, keep_inputs=True)
    check_jaxpr(live)
    same(mean(live), want)
    rng = np.random.default_rng(0)
    args = [rng.normal(size=a.shape).astype(a.dtype) for a in closed.in_avals]
    small, used_again = dce(closed)
    same(mean(small, [a for a, keep in zip(args, used_again) if keep]), want)
    assert used == used_again
    inlined = inline_calls(closed)
    check_jaxpr(inlined)
    same(mean(inlined), want)
    assert not any(e.primitive is jit_p for e in inlined.eqns)
    hoisted, values = hoist(closed)
    jaxpr = hoisted.jaxpr
    again = inputs_to_constants(with_new_variables(jaxpr), values)
    check_jaxpr(again)
    same(mean(again), want)
    assert str(again) == before == str(closed)
    known = data.draw(st.lists(st.booleans(), min_size=len(closed.in_avals), max_size=len(closed.in_avals)))
    split_means_the_same(closed, known, args, want)


def split_means_the_same(closed, known, args, want):
    parts = split(closed.jaxpr, known)
    values = dict(zip(map(id, closed.jaxpr.constvars), closed.consts))
    first, second = [ClosedJaxpr(p, [values[id(v)] for v in p.constvars]) for p in (parts.known, parts.unknown)]
    check_jaxpr(first)
    check_jaxpr(second)
    outs = mean(first, [a for a, flag in zip(args, known) if flag])
    residuals = outs[len(outs) - parts.residuals:]
    later = iter(mean(second, [*residuals, *[a for a, flag in zip(args, known) if not flag]]))
    early = iter(outs)
    same([next(early) if flag else next(later) for flag in parts.known_outputs], want)


@settings(max_examples=30, deadline=None)
@given(programs(inputs=2))
def test_substituting_an_input_is_passing_it_twice(closed):
    x, y = closed.jaxpr.invars
    one = ClosedJaxpr(substitute(closed.jaxpr, {id(y): x}), closed.consts)
    check_jaxpr(one)
    value = np.linspace(-1, 1, 4, dtype=np.float32)
    same(mean(one, [value]), mean(closed, [value, value]))


@settings(max_examples=30, deadline=None)
@given(programs(), st.lists(st.text(max_size=4), min_size=3, max_size=3))
def test_any_argument_names_can_be_printed_and_read(closed, names):
    jaxpr = closed.jaxpr.replace(debug=DebugInfo("f", tuple(names[:len(closed.in_avals)])))
    text = jaxpr.pretty_print(arg_names=True)
    assert str(parse_jaxpr(text, PRIMITIVES, names=NAMES)) == str(closed)
