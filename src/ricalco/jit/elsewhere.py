"""Settings of JAX's that change nothing here: programs set them, and have to run."""
from __future__ import annotations

from ricalco.engine.placement import check_placement
from ricalco.python.places import warn_at_user_line

# By name: what it is, the values that say what is so anyway, and for another one what there is instead.
_SETTINGS = {
    "platforms": ("cpu", (None, "", "cpu"), None),
    "platform_name": ("cpu", (None, "", "cpu"), None),
    "check_tracer_leaks": (False, (False,), "leaks are always told; check_leaks='error' makes them errors"),
    "enable_checks": (False, (False,), "what is recorded is always checked"),
    "explain_cache_misses": (False, (False,), "f.retraces() and ricalco.show_traces(f) tell them"),
    "log_compiles": (False, (False,), "ricalco.show_traces(f) tells what was compiled, when and how long"),
    "persistent_cache_min_compile_time_secs": (0, (0,), "all compiled programs are kept"),
    "persistent_cache_min_entry_size_bytes": (0, (-1, 0), "all compiled programs are kept"),
}
# Of random numbers and of `jax.nn`, which are not there: any value will do.
_OF_WHAT_IS_NOT_THERE = ("default_prng_impl", "enable_custom_prng", "softmax_custom_jvp", "threefry_partitionable")

NAMES = ("default_device", *_SETTINGS, *_OF_WHAT_IS_NOT_THERE)
values = {name: _SETTINGS[name][0] if name in _SETTINGS else None for name in NAMES}  # what was set, or what is so


def set_value(name: str, value) -> None:
    """Note the value, and warn if it asks for what does not come.

    Raises
    ------
    ValueError
        For a platform that there is not, or a device that is not the default one.
    """
    if name == "default_device" and value is not None:
        check_placement("config.default_device", {"device": value})
    if name in _SETTINGS:
        _, accepted, instead = _SETTINGS[name]
        if value not in accepted:
            if instead is None:
                raise ValueError(f"{name}={value!r}: programs run on the CPU; expected 'cpu' or None")
            warn_at_user_line(UserWarning(f"{name}={value!r} changes nothing: {instead}"))
    values[name] = value
