"""Calls with NumPy arguments through jaxlib's own dispatcher, which puts them on the device three times faster.
XLA's own pytrees, three times faster to flatten than `avals.trees`: for the keys of known signatures only.

The dispatcher shares the memory of aligned arrays, and reads it later: so it is given private copies, of small
arrays only. It would narrow 64-bit types if jax, loaded in the same process, has x64 off: so it gets none.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ricalco.avals import ShapedArray, shaped, trees
from ricalco.engine.client import backend
from ricalco.engine.shim import _jax
from ricalco.engine.transfer import put_host

LARGEST = 1 << 16  # bytes of an argument; a larger one is copied once by `put`, not twice


class _FastPath(NamedTuple):
    """What the dispatcher wants to know of a program, by jaxlib's names."""
    xla_executable: object
    out_pytree_def: object
    in_shardings: list
    out_shardings: list
    out_avals: list
    out_committed: list
    kept_var_bitvec: list
    in_device_local_layouts: list
    const_args: list


_registry = _jax.pytree.PyTreeRegistry(enable_none=True, enable_tuple=True, enable_namedtuple=True, enable_list=True,
                                       enable_dict=True)
_followed = 0


def quick_flatten(tree) -> tuple[list, object]:
    """Leaves and a hashable structure. A container that is not known here is a leaf."""
    if _followed != len(trees.registered):
        _follow()
    try:
        return _registry.flatten(tree)
    except ValueError:  # a dict whose keys cannot be sorted
        return [tree], None


def _follow() -> None:
    """Register what has been registered with `avals.trees` since."""
    global _followed
    while _followed < len(trees.registered):
        cls, to_children, from_children = trees.registered[_followed]
        _followed += 1
        _registry.register_node(cls, lambda x, f=to_children: tuple(f(x))[:2], from_children)


def _prepare_process() -> None:
    """The dispatcher reads three process-wide settings. They are jax's, once it is loaded."""
    if "jax" not in sys.modules and not _prepared:
        for setter, value in (("set_enable_x64_state", False), ("set_disable_jit_state", False),
                              ("set_post_hook_state", None)):
            getattr(_jax.jax_jit, setter)(_jax.config.Config(setter, value, include_in_jit_key=True,
                                                            include_in_trace_context=True))
    _prepared.append(True)


_prepared: list[bool] = []


def suits(avals: Sequence[ShapedArray]) -> bool:
    """Whether arguments of these types may take this way."""
    return all(a.dtype.itemsize <= 4 and a.dtype.isbuiltin == 1 and a.nbytes <= LARGEST for a in avals)


def host_call(loaded, execute: Callable, handlers: list, n_inputs: int, out_avals: Sequence[ShapedArray]) -> Callable:
    """A function of buffers and NumPy arrays, of exactly the program's types, that gives a list of buffers.

    The arrays must be private: their memory may be shared with the device.
    """
    _prepare_process()
    sharding = backend().sharding
    known = _FastPath(
        loaded, _registry.flatten([0] * len(out_avals))[1], [sharding] * n_inputs, [sharding] * len(out_avals),
        list(out_avals), [False] * len(out_avals), [True] * n_inputs, [None] * n_inputs, [])

    def on_miss(*values):
        # Put and run by hand; from the next call on the dispatcher does it.
        buffers = [v if isinstance(v, _jax.ArrayImpl) else _put(v) for v in values]
        return list(execute(buffers).consume_with_handlers(handlers)), known, False

    def by_hand(*values):
        return on_miss(*values)[0]

    return _jax.pjit("ricalco", by_hand, on_miss, [], [], object(), _registry, _refuse,
                     _jax.PjitFunctionCache(capacity=8))


def _refuse(*values):
    raise TypeError("an argument of a kind that the dispatcher does not know")


def _put(host):
    return put_host(host, shaped(host.shape, host.dtype))
