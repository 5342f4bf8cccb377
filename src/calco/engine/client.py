"""The XLA client and its devices. Made once, at first use."""
from __future__ import annotations

import os
from functools import cache

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # read when jaxlib loads; else INFO lines on stderr

from jaxlib import _jax
from jaxlib import xla_client as xc

_jax.set_tracebacks_enabled(False)  # saves 0.4 us a call; our own tracebacks name the user's line

if not hasattr(xc.SingleDeviceSharding, "_to_xla_hlo_sharding"):
    # jaxlib 0.10 asks the sharding for this; a single device holds the whole array.
    xc.SingleDeviceSharding._to_xla_hlo_sharding = lambda self, ndim: xc.HloSharding.replicate()


@cache
def client():
    """The CPU client."""
    return xc.make_cpu_client(asynchronous=True)


@cache
def devices() -> list:
    return list(client().local_devices())


@cache
def default_device():
    return devices()[0]


@cache
def default_sharding():
    return xc.SingleDeviceSharding(default_device())


@cache
def device_list():
    return xc.DeviceList((default_device(),))
