"""Arrays in NumPy's file formats, and how they print."""
from __future__ import annotations

import numpy as np

from ricalco.avals import dtypes
from ricalco.core import Array
from ricalco.numpy.creation import asarray

__all__ = ["array_repr", "array_str", "get_printoptions", "load", "printoptions", "save", "savez", "set_printoptions"]

array_repr, array_str = np.array_repr, np.array_str
get_printoptions, printoptions, set_printoptions = np.get_printoptions, np.printoptions, np.set_printoptions
save, savez = np.save, np.savez


def load(file, *args, **kwargs) -> Array:
    """The array in a file that `save` wrote (or NumPy did). An archive of several comes as NumPy gives it.

    Parameters
    ----------
    file : path or open file
    *args, **kwargs
        As for ``numpy.load``.

    Examples
    --------
    >>> import io
    >>> import ricalco.numpy as jnp
    >>> file = io.BytesIO()
    >>> jnp.save(file, jnp.arange(3))
    >>> _ = file.seek(0)
    >>> jnp.load(file).tolist()
    [0, 1, 2]
    """
    found = np.load(file, *args, **kwargs)
    if not isinstance(found, np.ndarray):
        return found
    if found.dtype == np.dtype("V2"):  # NumPy keeps only the size of bfloat16
        found = found.view(dtypes.bfloat16)
    return asarray(found)
