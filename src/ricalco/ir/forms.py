"""Where the printed form of an equation differs from its parameters, and how the parser undoes it.

Most parameters are printed as they are. A few say nothing in almost every program, and JAX does not
print them then; `HIDDEN` lists those. JAX leaves out more (what the types tell) and prints some that
ricalco has not got; `pretty_print(jax=True)` does too. The parser reads both forms.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ricalco.avals import ShapedArray, dtypes

# primitive -> {parameter: value}: not printed when it has this value, and this value when not printed.
HIDDEN: dict[str, dict[str, object]] = {
    "dot_general": {"precision": None, "preferred_element_type": None},
    **{name: {"masked": False, "mapped": ()} for name in ("debug_callback", "io_callback", "pure_callback")},
    "check": {"masked": False},
    "debug_print": {"in_tree": None, "keywords": (), "masked": False, "mapped": (), "np_printoptions": (),
                    "static_args": ()},
    "custom_jvp_call": {"num_consts": 0},
    "custom_vjp_call": {"num_consts": 0},
    "custom_vmap_call": {"num_consts": 0},
}
# The same, in JAX's form only.
HIDDEN_IN_JAX: dict[str, dict[str, object]] = {
    "broadcast_in_dim": {"broadcast_dimensions": ()},
}
# primitive -> the parameter that is the shape of the result; not printed in JAX's form.
RESULT_SHAPE = {"broadcast_in_dim": "shape"}
# primitive -> parameters that JAX has and ricalco does not, with the value that means nothing.
ONLY_IN_JAX: dict[str, dict[str, object]] = {
    **{name: {"sharding": None} for name in ("iota", "reshape")},
    **{name: {"out_sharding": None} for name in ("reduce_sum", "rng_bit_generator", "conv_general_dilated")},
    "new_ref": {"kind": None, "memory_space": None},
}
# Printed by some versions of JAX: read over, and never printed.
READ_OVER: dict[str, dict[str, object]] = {
    **ONLY_IN_JAX,
    **{name: {"out_sharding": None} for name in ("reduce_sum", "reduce_max", "reduce_min", "dot_general")},
    "top_k": {"is_stable": True},
}
# Parameters whose innermost tuples are printed in square brackets.
BRACKETED = {("dot_general", "dimension_numbers")}


def dtype_name(dtype: np.dtype) -> str:
    """As parameters print it."""
    return "float0" if dtype == dtypes.float0 else dtype.name


# Stands around the words for what a folded text leaves out.
FOLD = "\N{HORIZONTAL ELLIPSIS}"
# Words that mean something in a parameter: no program is called so.
RESERVED = frozenset({"None", "True", "False", "inf", "nan", "frozenset", "ShapedArray",
                      *map(dtype_name, dtypes.ALL)})


def _hides(table: dict, name: str, key: str, value) -> bool:
    hidden = table.get(name)
    if hidden is None or key not in hidden:
        return False
    default = hidden[key]
    return value is default or (type(value) is type(default) and value == default)


def shown(name: str, params: dict, jax: bool = False) -> list[tuple[str, object]]:
    """The parameters of an equation to print: `name` first, the others by name."""
    kept = {k: v for k, v in params.items() if not _hides(HIDDEN, name, k, v)}
    if jax:
        kept = {k: v for k, v in kept.items()
                if not _hides(HIDDEN_IN_JAX, name, k, v) and RESULT_SHAPE.get(name) != k}
        kept = {**ONLY_IN_JAX.get(name, {}), **kept}
    return sorted(kept.items(), key=lambda item: (item[0] != "name", item[0]))


def restored(name: str, params: dict, out_avals: Sequence[ShapedArray]) -> dict:
    """The parameters of an equation from the printed ones."""
    nothing = READ_OVER.get(name, {})
    params = {k: v for k, v in params.items() if not (k in nothing and v is nothing[k])}
    for table in (HIDDEN, HIDDEN_IN_JAX):
        for key, default in table.get(name, {}).items():
            params.setdefault(key, default)
    key = RESULT_SHAPE.get(name)
    if key is not None and out_avals:
        params.setdefault(key, out_avals[0].shape)
    return params


class Opaque:
    """A value that printed text names and does not hold, such as a function. It prints as that name."""
    __slots__ = ("__name__",)

    def __init__(self, name: str):
        self.__name__ = name

    def __call__(self, *args, **kwargs):
        name = self.__name__.strip("<>")
        raise NotImplementedError(f"the program was parsed from text, which names `{name}` and does not hold it; "
                                  f"pass names={{'{name}': ...}} to parse_jaxpr")

    def __eq__(self, other):
        return isinstance(other, Opaque) and other.__name__ == self.__name__

    def __hash__(self):
        return hash(self.__name__)

    def __repr__(self):
        return self.__name__
