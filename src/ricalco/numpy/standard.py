"""What the Python array API standard asks of a namespace and of its arrays, beside NumPy's functions."""
from __future__ import annotations

import importlib

from ricalco.avals import dtypes
from ricalco.core import Array
from ricalco.engine import device_put, from_dlpack
from ricalco.engine import devices as all_devices

__all__ = ["from_dlpack"]

__array_api_version__ = "2024.12"
_VERSIONS = ("2021.12", "2022.12", "2023.12", __array_api_version__)
_KINDS = {"bool": ("bool",), "signed integer": ("int8", "int16", "int32", "int64"),
          "unsigned integer": ("uint8", "uint16", "uint32", "uint64"), "real floating": ("float32", "float64"),
          "complex floating": ("complex64", "complex128")}
_UNIONS = {"integral": ("signed integer", "unsigned integer"),
           "numeric": ("signed integer", "unsigned integer", "real floating", "complex floating")}


class __array_namespace_info__:
    """What the namespace can do, in the form of the array API standard.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.__array_namespace_info__().default_dtypes()["real floating"]
    dtype('float32')
    """
    __slots__ = ()

    def capabilities(self) -> dict:
        """Masks are indices, and sizes of results depend on values, outside of traced functions alone."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self):
        """The device of arrays that are made."""
        return all_devices()[0]

    def devices(self) -> list:
        """All devices."""
        return list(all_devices())

    def default_dtypes(self, *, device=None) -> dict:
        """The dtypes that Python numbers and indices have on every device: of 32 bits, unless x64 is enabled."""
        number = dtypes.python_dtype
        return {"real floating": number(float), "complex floating": number(complex), "integral": number(int),
                "indexing": number(int)}

    def dtypes(self, *, device=None, kind: str | tuple[str, ...] | None = None) -> dict:
        """The dtypes of the standard that arrays may have now, by their names; those of a kind, or of several.

        Raises
        ------
        ValueError
            If there is no such kind.
        """
        kinds = tuple(_KINDS) if kind is None else (kind,) if isinstance(kind, str) else tuple(kind)
        for given in kinds:
            if given not in _KINDS and given not in _UNIONS:
                raise ValueError(f"kind={given!r}: expected one of {', '.join(map(repr, [*_KINDS, *_UNIONS]))}")
        names = [name for given in kinds for one in _UNIONS.get(given, (given,)) for name in _KINDS[one]]
        return {name: dtypes.as_dtype(name) for name in names if dtypes.canonicalize(name).name == name}


def namespace(self, *, api_version: str | None = None):
    """`ricalco.numpy`, where the array API standard has functions of arrays.

    Raises
    ------
    ValueError
        For a version of the standard that is not known.
    """
    if api_version not in (None, *_VERSIONS):
        raise ValueError(f"api_version={api_version!r}: expected one of {', '.join(map(repr, _VERSIONS))}")
    return importlib.import_module("ricalco.numpy")


def to_device(self, device, *, stream=None) -> Array:
    """The array on another device; see `ricalco.device_put`."""
    if stream is not None:
        raise ValueError(f"to_device: stream={stream!r}: expected None for an array on the CPU")
    return device_put(self, device)
