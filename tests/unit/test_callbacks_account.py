"""What runs in Python on every call is on the account of the trace, beside what ran once."""
from __future__ import annotations

import functools
import json

import ricalco
from ricalco import debug, lax

LOG: list = []


def step(x):
    print("tracing")
    debug.print("x = {}", x)

    def body(c, _):
        debug.callback(LOG.append, c)
        return lax.cond(c > 3, lambda: ricalco.jit(tell)(c), lambda: c), None
    y, _ = lax.scan(body, x, None, length=3)
    return ricalco.pure_callback(abs, y, y)


def tell(c):
    ricalco.experimental.io_callback(LOG.append, None, c)
    return c * 2


def test_the_facts():
    first = step.__code__.co_firstlineno
    account = ricalco.explain(step)(1.0)
    assert [(c.construct, c.what, c.inside, c.place.line) for c in account.callbacks] == [
        ("debug.print", "'x = {}'", (), first + 2), ("debug.callback", "append", ("scan",), first + 5),
        ("io_callback", "append", ("scan", "cond"), tell.__code__.co_firstlineno + 1),
        ("pure_callback", "abs", (), first + 8)]
    assert [e.kind for e in account.effects] == ["print"] and not account.captures
    told = json.loads(account.to_json())["callbacks"]
    assert [c["construct"] for c in told] == ["debug.print", "debug.callback", "io_callback", "pure_callback"]
    assert told[1]["inside"] == ["scan"] and told[0]["place"]["text"] == 'debug.print("x = {}", x)'
    assert LOG == []  # an account runs nothing


def test_the_words(tmp_path, capsys):
    account = ricalco.explain(step)(1.0)
    first = step.__code__.co_firstlineno
    text = str(account)
    at = text.index("runs on every call\n")
    assert [" ".join(line.split()) for line in text[at:].splitlines()[1:3]] == [
        f"debug.print('x = {{}}') test_callbacks_account.py:{first + 2}",
        f"debug.callback(append) in scan test_callbacks_account.py:{first + 5}"]
    assert text.index("ran once, at trace time") < at and "# every call: debug.print" in text
    account.to_html(tmp_path / "account.html")
    page = (tmp_path / "account.html").read_text(encoding="utf-8")
    assert "Every call" in page and "debug.callback" in page
    f = ricalco.jit(step)
    f(1.0)
    capsys.readouterr()
    ricalco.show_traces(f)
    assert "runs on every call" in capsys.readouterr().out


def test_a_function_with_callbacks_can_be_pure_python():
    log, other = [], []
    pure = ricalco.check_pure(step)(1.0)
    assert [d.kind for d in pure.differences] == [], str(pure)

    def f(x):
        debug.callback(lambda v: log.append(v), x)
        debug.callback(functools.partial(tell), x)
        return x
    assert ricalco.check_pure(f)(1.0).pure
    turns = iter([log.append, other.append])

    def impure(x):
        debug.callback(next(turns), x)
        return x
    assert not ricalco.check_pure(impure)(1.0).pure


def test_without_callbacks_nothing_is_said():
    account = ricalco.explain(lambda x: x + 1)(1.0)
    assert account.callbacks == () and "every call" not in str(account)
