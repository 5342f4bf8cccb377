"""The messages of errors about traced values: what asked for the data, where, what it is, what to write instead."""
from __future__ import annotations

from collections.abc import Callable
from types import FrameType

from ricalco.python.places import Place, file_line, short_path
from ricalco.python.reach import reach
from ricalco.python.reading import is_a, parts
from ricalco.python.words import constructs
from ricalco.python.words.constructs import Use
from ricalco.python.words.remedies import remedies
from ricalco.python.words.site import Site

_PHRASES = {"conditional expression", "comprehension condition", "chained comparison", "match guard",
            "match pattern", "comparison of containers", "condition", "function call", "iteration", "index",
            "slice", "f-string", "integer", "NumPy operation", "boolean index", "expression", "use",
            "item assignment", "in-place operation"}
_LABEL = 10
_NEEDS = {"pickling": "the data", ".tolist()": "the data", "int()": "an integer"}


# --- one for each error; each fills the facts of the error and gives its message --------------------

def number(error, tracer, what: str) -> str:
    """A function of the library says in words what it needs the value for."""
    head = what.split(",")[0] if " " in what else ""
    need = "the data" if head else _NEEDS.get(what, "a number")
    return _conversion(error, tracer, need, lambda site: constructs.number_use(site, what), head=head)


def boolean(error, tracer) -> str:
    return _conversion(error, tracer, "True or False", constructs.boolean_use)


def ambiguous(error, tracer) -> str:
    return _conversion(error, tracer, "one True or False", constructs.boolean_use,
                       state=f"is ambiguous: a traced array of shape {tracer.aval.shape}",
                       first="(condition).any() or (condition).all() makes one answer of it")


def integer(error, tracer) -> str:
    fits = tracer.aval.dtype.kind in "iu" and not tracer.aval.shape
    first = "" if fits else f"an integer scalar: {_type(tracer.aval)} would not do outside a trace either"
    return _conversion(error, tracer, "an integer", constructs.integer_use, first=first)


def array(error, tracer) -> str:
    return _conversion(error, tracer, "a NumPy array", constructs.array_use)


def mask(error, tracer) -> str:
    return _conversion(error, tracer, "the mask", constructs.boolean_index_use)


def leaked(error, tracer) -> str:
    """Of a tracer that is used after its trace."""
    site = Site(tracer)
    use = constructs.any_use(site)
    origin = tracer.owner.origin(tracer)
    error.created = _shown(origin.created) if origin.created else None
    error.stored = _holder_of(tracer, site.frame)
    error.construct, error.place = use.construct, site.place
    error.function, error.arguments = origin.function, origin.arguments
    error.tracer_aval = tracer.aval
    function = f"`{origin.function}`" if origin.function else "the function"
    error.remedy = f"return it from {function}, and store what the call gives back"
    kept = [f"`{error.stored}`"] if error.stored else [
        "a global, an attribute, a list or a closure that outlived the trace"]
    return "\n".join([
        f"This value belongs to the tracing of {function}, which has ended: it has no value here.",
        "", *_where(site, use),
        *_labelled("Traced", [f"{_type(tracer.aval)}{_from_arguments(origin)}"]),
        *_labelled("Made at", [error.created] if error.created else []),
        *_labelled("Kept in" if error.stored else "Cause", kept),
        *_labelled("Instead", [error.remedy])])


def endless(error, branch, place: Place, taken: str | None) -> str:
    """Of a recursion through a branch; `taken` is the branch that the program takes, if that is known."""
    error.construct, error.place, error.function = branch.construct, place, branch.label
    known = taken is not None
    error.remedy = ("Python's `if`, which traces one branch alone: the predicate is known while tracing"
                    if known else "Python's `if` where the predicate is known while tracing, or lax.while_loop or "
                    "lax.scan where it depends on traced values")
    constant = f"  It has a constant predicate, a Python value: the program takes {taken} always.\n" * known
    return (f"The recursion through {branch.role} of {branch.construct} has no end: every branch is traced, whatever "
            f"the predicate is, and so is the call of the function itself in {branch.label}.\n\n"
            f"  {place.where}\n      {place.text}\n\n{constant}  Instead:   {error.remedy}")


# --- the parts of a message -----------------------------------------------------------------------

def _conversion(error, tracer, need: str, find: Callable[[Site], Use],
                state: str = "is traced: it has no value yet", first: str = "", head: str = "") -> str:
    """Fill the facts of `error` and return its message.

    `first` is advice that depends on the type alone; `head` replaces the name of the construct.
    """
    site = Site(tracer)
    use = find(site)
    origin = tracer.owner.origin(tracer)
    advice = [first] * bool(first) + remedies(site, use)
    static = _static_advice(site, origin) if use.kind in _STATIC or need == "an integer" else ""
    if static:
        advice = [*advice, static]
    error.construct, error.place = use.construct, _place(site, use)
    error.function, error.arguments = origin.function, origin.arguments
    error.remedy = "\n".join(advice)
    error.tracer_aval = tracer.aval
    subject = site.text(use.subject, 50, "")
    value = "its comparison" if use.kind in _COMPARING else f"`{subject}`" if subject else "the value"
    return "\n".join([f"{head or _named(site, use)} needs {need} now, and {value} {state}.",
                      "", *_where(site, use), *_value_lines(tracer, origin, site.place),
                      *_labelled("Instead", advice)])


def _named(site: Site, use: Use) -> str:
    """The construct at the start of a sentence."""
    node = site.parent(use.node) if use.kind.startswith("stored") and use.kind != "stored mask" else use.node
    text = site.text(node, 50, "") if use.construct.endswith(")") or use.kind in _SHOWN else ""
    name = text or use.construct
    if use.kind == "condition" or use.construct in _PHRASES and not text:
        return f"{'An' if name[0] in 'aeiouf' and name != 'function call' else 'A'} {name}"
    if text and use.construct in _PHRASES:
        return f"The {use.construct} `{text}`"
    return f"`{name}`"


_SHOWN = {"in", "chained", "container ==", "index", "stored index", "stored value", "slice", "mask", "stored mask",
          "repeat", "table", "conditional expression", "not", "format", "augmented"}
_COMPARING = {"min", "max", "in", "sorted", "membership", "match pattern", "container ==", "chained"}
_STATIC = {"if", "while", "conditional expression", "comprehension condition", "match guard", "match pattern", "and",
           "or", "not", "bool", "condition", "int", "library"}


def _place(site: Site, use: Use) -> Place:
    node = use.subject if use.kind in _TESTS else use.node
    if node is None or not hasattr(node, "lineno"):
        return site.place
    return Place(site.place.file, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset,
                 site.function_name())


_TESTS = {"if", "while", "assert", "and", "or", "conditional expression", "comprehension condition", "match guard",
          "condition"}


def _where(site: Site, use: Use) -> list[str]:
    """``file:line, in f`` and the source line with the construct underlined."""
    place = _place(site, use)
    inside = "" if place.function == "<module>" else f", in {place.function}"
    lines = [f"  {place.where}{inside}"]
    source = site.tree.lines[place.line - 1].rstrip("\n") if site.tree is not None and site.node is not None else ""
    text = source.strip()
    if text:
        lines.append(f"      {text[:100]}")
        before = len(source.encode()[:place.column].decode(errors="replace")) - (len(source) - len(source.lstrip()))
        width = len(source.encode()[place.column:place.end_column].decode(errors="replace"))
        if place.end_line == place.line and width and before >= 0 and before + width <= 100 and width < len(text):
            lines.append("      " + " " * before + "^" * width)
    if site.caller is not None:
        lines.append(f"  called at {site.caller.where}: {site.caller.text}")
    return [*lines, ""]


def _value_lines(tracer, origin, place: Place | None) -> list[str]:
    lines = _labelled("Traced", [f"{_type(tracer.aval)}{_from_arguments(origin)}"])
    here = f"{place.file}:{place.line} " if place is not None else ""
    if origin.created and not origin.created.endswith("()") and not (here and origin.created.startswith(here)):
        lines += _labelled("Made at", [_shown(origin.created)])
    return lines


def _shown(created: str) -> str:
    """``file:line (text)`` as people know the file."""
    where, mark, text = created.partition(" (")
    file, _, line = where.rpartition(":")
    return f"{file_line(file, int(line))}{mark}{text}" if line.isdigit() else short_path(created)


def _type(aval) -> str:
    return f"{aval.dtype.name}[{','.join(map(str, aval.shape))}]"


def _from_arguments(origin) -> str:
    names = [f"`{a}`" for a in origin.arguments[:4]]
    if len(origin.arguments) > 4:
        names.append(f"{len(origin.arguments) - 4} more")
    of = f" of `{origin.function}`" if origin.function else ""
    by = f", traced by {origin.transform}" if origin.transform and origin.transform != "jit" else ""
    if not names:
        return f", made inside `{origin.function}`{by}" if origin.function else by
    listed = names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
    plural = "s" if len(names) > 1 else ""
    if origin.created is None and not plural:
        return f", argument {listed}{of}{by}"
    return f", computed from argument{plural} {listed}{of}{by}"


def _static_advice(site: Site, origin) -> str:
    """`static_argnames`, when the value is, or plainly comes from, a count, a flag or a Python number."""
    if origin.transform not in (None, "jit", "checkpoint") or not origin.function or len(origin.arguments) != 1:
        return ""
    name = origin.arguments[0]
    value = site.tracer if origin.created is None else site.frame.f_locals.get(name)
    if not name.isidentifier() or getattr(value, "shape", None) != ():
        return ""
    if not getattr(value, "weak_type", False) and value.dtype.kind not in "biu":
        return ""
    function = origin.function if origin.function.isidentifier() else "f"
    if origin.transform == "checkpoint":
        return f'checkpoint({function}, static_argnames="{name}") (or static_argnums) leaves it a Python value'
    return f'jit({function}, static_argnames="{name}") (or static_argnums) compiles one program for each value'


def _labelled(label: str, lines: list[str]) -> list[str]:
    heads = [f"  {label}:".ljust(_LABEL + 2)] + [" " * (_LABEL + 2)] * (len(lines) - 1)
    return [head + " " + line for head, line in zip(heads, lines)]


def _holder_of(tracer, frame: FrameType) -> str | None:
    """The global, attribute or item through which `frame` can reach `tracer`: ``store['log'][0]``."""
    module, local = frame.f_globals, frame.f_locals
    names = [(name, value) for scope in ((module,) if local is module else (module, local))
             for name, value in list(scope.items()) if not name.startswith("__")]
    direct = None
    for path, value in reach(names, lambda value: _parts(value, module), 4):
        if value is tracer:
            if path not in local or module.get(path) is tracer:
                return path
            direct = direct or path
    return direct


def _parts(value, module: dict) -> list[tuple[str, object, object]]:
    if is_a(value, type) and value.__module__ == module.get("__name__"):
        return [("attribute", name, x) for name, x in list(vars(value).items()) if not name.startswith("__")]
    return [part for part in parts(value) if part[0] == "item" or not part[1].startswith("__")]
