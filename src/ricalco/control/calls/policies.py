"""Policies for `checkpoint`: which values inside are kept for the derivative, instead of being computed again.

A policy is asked about each operation of the function: ``policy(primitive, *avals, **params)`` says whether its
results may be kept. Those that the derivative has a use for then are.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def everything_saveable(prim, *avals, **params) -> bool:
    """Keep whatever the derivative needs: as without `checkpoint`.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> f = ricalco.checkpoint(jnp.sin, policy=ricalco.checkpoint_policies.everything_saveable)
    >>> [residual.origin[:18] for residual in ricalco.ad_checkpoint.saved_residuals(lambda angle: f(angle), 1.0)]
    ['output of cos from']
    """
    return True


def nothing_saveable(prim, *avals, **params) -> bool:
    """Keep the arguments alone and compute the rest again: as without a policy.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> f = ricalco.checkpoint(jnp.sin, policy=ricalco.checkpoint_policies.nothing_saveable)
    >>> ricalco.ad_checkpoint.print_saved_residuals(lambda angle: f(angle), 1.0)
    f32[] from the argument angle
    """
    return False


@dataclass(frozen=True)
class DotsSaveable:
    """Keep the results of matrix products."""
    only_if_no_batch_dims: bool

    def __call__(self, prim, *avals, **params) -> bool:
        if prim.name != "dot_general":
            return False
        _, batch = params["dimension_numbers"]
        return not self.only_if_no_batch_dims or not any(batch)


dots_saveable = checkpoint_dots = DotsSaveable(False)
dots_with_no_batch_dims_saveable = checkpoint_dots_with_no_batch_dims = DotsSaveable(True)


def _names(policy: str, names) -> frozenset[str]:
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{policy}: names must be strings, as given to checkpoint_name, got {name!r} of type "
                            f"{type(name).__name__}")
    return frozenset(names)


@dataclass(frozen=True)
class SaveOnlyTheseNames:
    """Keep what `checkpoint_name` calls one of these names."""
    saveable_names: frozenset[str]

    def __call__(self, prim, *avals, **params) -> bool:
        return prim.name == "name" and params["name"] in self.saveable_names


def save_only_these_names(*names_which_can_be_saved: str) -> SaveOnlyTheseNames:
    """Keep what `checkpoint_name` calls one of these names, and nothing else.

    Raises
    ------
    TypeError
        If a name is not a string.

    Examples
    --------
    >>> import ricalco
    >>> ricalco.checkpoint_policies.save_only_these_names("hidden")
    SaveOnlyTheseNames(saveable_names=frozenset({'hidden'}))
    """
    return SaveOnlyTheseNames(_names("save_only_these_names", names_which_can_be_saved))


@dataclass(frozen=True)
class SaveAnyNamesButThese:
    """Keep what `checkpoint_name` names, but for these names."""
    names: frozenset[str]

    def __call__(self, prim, *avals, **params) -> bool:
        return prim.name == "name" and params["name"] not in self.names


def save_any_names_but_these(*names_not_to_save: str) -> SaveAnyNamesButThese:
    """Keep what `checkpoint_name` names, but for these names; nothing without a name.

    Examples
    --------
    >>> import ricalco
    >>> ricalco.checkpoint_policies.save_any_names_but_these("hidden")
    SaveAnyNamesButThese(names=frozenset({'hidden'}))
    """
    return SaveAnyNamesButThese(_names("save_any_names_but_these", names_not_to_save))


@dataclass(frozen=True)
class SaveAnythingExceptTheseNames:
    """Keep anything, named or not, but for these names."""
    names: frozenset[str]

    def __call__(self, prim, *avals, **params) -> bool:
        return prim.name != "name" or params["name"] not in self.names


def save_anything_except_these_names(*names_not_to_save: str) -> SaveAnythingExceptTheseNames:
    """Keep anything, named or not, but for what `checkpoint_name` calls one of these names.

    The name of a value is an operation of its own: what stood before it has no name and may be kept.

    Examples
    --------
    >>> import ricalco
    >>> ricalco.checkpoint_policies.save_anything_except_these_names("hidden")
    SaveAnythingExceptTheseNames(names=frozenset({'hidden'}))
    """
    return SaveAnythingExceptTheseNames(_names("save_anything_except_these_names", names_not_to_save))


@dataclass(frozen=True)
class SaveFromBothPolicies:
    """Keep what either policy keeps."""
    first: Callable[..., bool]
    second: Callable[..., bool]

    def __call__(self, prim, *avals, **params) -> bool:
        return bool(self.first(prim, *avals, **params)) or bool(self.second(prim, *avals, **params))


def save_from_both_policies(policy_1: Callable, policy_2: Callable) -> SaveFromBothPolicies:
    """Keep what either of two policies keeps.

    Raises
    ------
    TypeError
        If one of them cannot be called.

    Examples
    --------
    >>> from ricalco import checkpoint_policies
    >>> policy = checkpoint_policies.save_from_both_policies(
    ...     checkpoint_policies.dots_saveable, checkpoint_policies.save_only_these_names("hidden"))
    """
    for policy in (policy_1, policy_2):
        if not callable(policy):
            raise TypeError(f"save_from_both_policies needs two policies, got {policy!r} of type "
                            f"{type(policy).__name__}")
    return SaveFromBothPolicies(policy_1, policy_2)


def _no_other_memory(policy: str) -> NotImplementedError:
    return NotImplementedError(
        f"{policy}: ricalco has one memory space, so nothing can be moved to another; use save_only_these_names to "
        "keep values where they are, or leave them out to compute them again")


def save_and_offload_only_these_names(*, names_which_can_be_saved=(), names_which_can_be_offloaded=(),
                                      offload_src: str = "device", offload_dst: str = "pinned_host"):
    """Not available: there is one memory space.

    Raises
    ------
    NotImplementedError
        Always, with what to use instead.
    """
    raise _no_other_memory("save_and_offload_only_these_names")


def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str):
    """Not available: there is one memory space.

    Raises
    ------
    NotImplementedError
        Always, with what to use instead.
    """
    raise _no_other_memory("offload_dot_with_no_batch_dims")


__all__ = ["checkpoint_dots", "checkpoint_dots_with_no_batch_dims", "dots_saveable",
           "dots_with_no_batch_dims_saveable", "everything_saveable", "nothing_saveable",
           "offload_dot_with_no_batch_dims", "save_and_offload_only_these_names", "save_any_names_but_these",
           "save_anything_except_these_names", "save_from_both_policies", "save_only_these_names"]
