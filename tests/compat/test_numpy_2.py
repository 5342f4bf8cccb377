"""Shapes, joining, picking, padding, sorting, sets and the methods of arrays: the same as `jax.numpy`."""
from __future__ import annotations

import contextlib
import warnings

import numpy as np
import pytest

import ricalco
import ricalco.numpy
from ricalco.avals import options
from tests.compat import test_numpy_1 as elementary
from tests.oracle import Given, jax

ARRAYS = dict(
    x=np.arange(6, dtype=np.float32).reshape(2, 3), y=np.arange(24, dtype=np.int32).reshape(2, 3, 4),
    v=np.array([3, 1, 2, 1], np.int32), w=np.array([2, 5, 2], np.int32),
    n=np.array([[3, np.nan, -0.0], [1, 2, 0]], np.float32),
    b=np.array([True, False, True, False]), c=np.array([1 + 2j, 1 - 1j, 0.5j], np.complex64),
    e=np.zeros((0, 3), np.float32),
    i=np.array([0, 2, 1], np.int32), u=np.array([3, 1, 3], np.uint8), s=np.array(2, np.int32), r=np.arange(1, 6))

# Expressions whose shapes do not depend on values: they run eagerly and all together in one program.
TRACED = """
jnp.apply_along_axis(jnp.sort, 1, y) | jnp.apply_along_axis(lambda a: jnp.stack([a.sum(), a.max()]), 1, y)
jnp.apply_along_axis(jnp.sum, -1, y) | jnp.apply_over_axes(jnp.sum, y, (0, 2))
jnp.fill_diagonal(x, 9, inplace=False) | jnp.fill_diagonal(y[:, 0], w[:2], inplace=False)
jnp.place(x, x > 2, w, inplace=False) | jnp.place(x, x > 9, 1, inplace=False) | jnp.reshape(y, (4, -1))
jnp.reshape(y, -1, order="F") | jnp.reshape(y, (6, 4), order="F") | jnp.reshape(3, (1, 1)) | y.reshape(2, 12)
y.reshape((3, 8), order="F") | y.reshape(-1) | jnp.ravel(x, order="F") | x.flatten() | x.flatten("F")
jnp.resize(x, (2, 5)) | jnp.resize(x, 3) | jnp.resize(e, (2, 2)) | jnp.transpose(y) | jnp.transpose(y, (1, 2, 0))
jnp.transpose(y, (-1, 0, 1)) | y.T | y.mT | x.transpose(1, 0) | x.transpose((1, 0)) | x.transpose(None)
jnp.permute_dims(x, (1, 0)) | jnp.matrix_transpose(y) | jnp.swapaxes(y, 0, -1) | y.swapaxes(1, 2)
jnp.moveaxis(y, 0, -1) | jnp.moveaxis(y, (0, 1), (-1, 0)) | jnp.rollaxis(y, 2) | jnp.rollaxis(y, 0, 3)
jnp.squeeze(y[:, :1]) | y[:, :1].squeeze(1) | jnp.squeeze(x) | jnp.expand_dims(x, (0, -1)) | jnp.expand_dims(x, 1)
jnp.expand_dims(2.0, 0) | jnp.atleast_1d(3.0) | jnp.atleast_2d(v) | jnp.atleast_3d(v) | jnp.atleast_3d(x)
jnp.atleast_3d(1) | list(jnp.atleast_1d(x, 1.0)) | jnp.broadcast_to(x, (2, 2, 3)) | jnp.broadcast_to(1.0, 3)
list(jnp.broadcast_arrays(x, i, 1)) | jnp.flip(y) | jnp.flip(y, 1) | jnp.flip(y, (0, -1)) | jnp.fliplr(x)
jnp.flipud(x) | jnp.rot90(x) | jnp.rot90(x, 2) | jnp.rot90(x, -1) | jnp.rot90(y, 1, (1, 2)) | jnp.rot90(x, 4)
jnp.roll(x, 1) | jnp.roll(x, -4, 1) | jnp.roll(x, (1, 2), (0, 1)) | jnp.roll(x, (1, 2), 0) | jnp.roll(x, s, 1)
jnp.roll(v, -s) | jnp.roll(e, 1, 0) | jnp.roll(x, 1, (0, 1)) | jnp.tile(x, 2) | jnp.tile(x, (2, 1, 2))
jnp.tile(1.0, 3) | jnp.tile(x, ()) | jnp.repeat(x, 2) | jnp.repeat(x, 2, axis=1) | jnp.repeat(1.0, 3)
x.repeat(3, axis=0) | jnp.repeat(v, i[:1], total_repeat_length=3) | jnp.repeat(r[:3], i, total_repeat_length=5)
jnp.repeat(r[:3], i, total_repeat_length=2) | jnp.repeat(x, i, axis=1, total_repeat_length=4)
jnp.repeat(v, 2, total_repeat_length=5) | jnp.repeat(x, np.array([1, 2]), axis=0)
jnp.repeat(x, np.array([0, 2]), axis=0) | jnp.concatenate([x, y[0, :2, :3]]) | jnp.concatenate([x, x], axis=-1)
jnp.concatenate([x, 3.0], axis=None) | jnp.concatenate(y) | jnp.concatenate([v, u])
jnp.concatenate([v, w], dtype="float32") | jnp.concatenate([jnp.full((1,), 1.0), jnp.full((1,), 1)])
jnp.concatenate([u, jnp.full((1,), 1)]) | jnp.concat([x, x], axis=0) | jnp.concatenate([b, i]) | jnp.stack([1.0, 2])
jnp.stack([x, x], axis=-1) | jnp.stack([v, 2 * v], dtype="int8") | jnp.stack(x) | jnp.hstack([1, 2.0, x[0]])
jnp.hstack([x, x]) | jnp.vstack([v, v]) | jnp.vstack([x, i]) | jnp.vstack(x) | jnp.dstack([x, x]) | jnp.dstack([v, v])
jnp.column_stack([v, v]) | jnp.column_stack([i[:2], x]) | jnp.block([[x, x], [jnp.zeros((1, 6))]]) | jnp.block([v, 1])
jnp.block(x) | jnp.block([[1, 2], [3, 4]]) | jnp.split(v, 2) | jnp.split(x, [1, 2], axis=1) | jnp.array_split(v, 3)
jnp.array_split(i, 5) | jnp.hsplit(x, 3) | jnp.hsplit(v, 2) | jnp.vsplit(x, 2) | jnp.dsplit(y, [1])
list(jnp.unstack(x)) | list(jnp.unstack(x, axis=1)) | jnp.append(x, 1) | jnp.append(x, x, axis=1)
jnp.insert(x, 1, 9.0, axis=1) | jnp.insert(v, np.array([1, 3]), w[:2]) | jnp.insert(x, 1, i[:2], axis=1)
jnp.insert(x, np.array([0, 2]), x[:, :1], axis=1) | jnp.insert(v, slice(0, 3, 2), 7) | jnp.insert(v, 9, 7)
jnp.insert(v, 1, w) | jnp.insert(v, s, 7) | jnp.insert(v, -1, 7) | jnp.insert(x, 2, 1)
jnp.delete(x, np.array([0, 2]), axis=1) | jnp.delete(v, np.array([True, False, True, False]))
jnp.delete(v, slice(1, 3)) | jnp.delete(v, -1) | jnp.delete(x, 1) | jnp.delete(r, i, assume_unique_indices=True)
jnp.take(x, i) | jnp.take(x, i, axis=1) | jnp.take(y, i[:2].reshape(2, 1), axis=1) | jnp.take(v, 9) | jnp.take(x, 9)
jnp.take(x, i - 9, axis=0) | jnp.take(u, 9) | jnp.take(v, 9, fill_value=-7) | jnp.take(v, i * 9 - 9, mode="wrap")
jnp.take(v, i * 9 - 9, mode="clip") | v.take(-1) | jnp.take(x, 1, axis=0) | jnp.take(c, 9)
jnp.take_along_axis(x, jnp.argsort(-x, axis=1), axis=1) | jnp.take_along_axis(x, i[None, :2], axis=1)
jnp.take_along_axis(x, i[:, None] * 9, 0) | jnp.take_along_axis(x, i, None)
jnp.take_along_axis(y, y[:, :1] % 3, axis=1) | jnp.take_along_axis(x, i[None] - 3, 1, mode="clip")
jnp.take_along_axis(v, i - 9, 0, fill_value=4) | jnp.put_along_axis(x, i[:1, None], 9.0, axis=1, inplace=False)
jnp.put_along_axis(x, i[None], x[:1], axis=1, inplace=False) | jnp.put(x, i, 8, inplace=False)
jnp.put(x, i * 9, v, inplace=False) | jnp.put(x, i * 9, v, mode="clip", inplace=False)
jnp.put(x, i * 5, w, mode="wrap", inplace=False) | list(jnp.diag_indices(3)) | list(jnp.diag_indices_from(x[:, :2]))
list(jnp.tril_indices(3, -1, 4)) | list(jnp.triu_indices(2)) | list(jnp.tril_indices_from(x, 1))
list(jnp.triu_indices_from(x)) | list(jnp.ix_(i, v)) | list(jnp.unravel_index(v * 9 - 9, (2, 3)))
list(jnp.unravel_index(u, (2, 3))) | jnp.ravel_multi_index((v % 2, v), (2, 3), mode="clip")
jnp.ravel_multi_index((v, v), (2, 3), mode="wrap", order="F") | jnp.ravel_multi_index((v, 1), (4, 3), mode="clip")
jnp.pad(x, 1) | jnp.pad(v, (1, 2), constant_values=(8, 9))
jnp.pad(x, ((1, 2), (0, 1)), constant_values=((1, 2), (3, 4))) | jnp.pad(v, 1, constant_values=1.7)
jnp.pad(jnp.full((2,), 1.0), 1) | jnp.pad(r, (2, 3), "edge") | jnp.pad(r, (2, 3), "reflect")
jnp.pad(r, (2, 3), "symmetric") | jnp.pad(r, (7, 13), "wrap") | jnp.pad(r, (2, 3), "linear_ramp")
jnp.pad(x, 2, "linear_ramp", end_values=(9, -1)) | jnp.pad(r, (2, 3), "maximum") | jnp.pad(r, (2, 3), "mean")
jnp.pad(r, (2, 3), "median") | jnp.pad(r, (2, 3), "minimum") | jnp.pad(x, 1, "mean") | jnp.pad(x, (1, 2), "median")
jnp.pad(r, (2, 3), "empty") | jnp.pad(r, (2, 3), "reflect", reflect_type="odd") | jnp.pad(r[:2], (5, 6), "reflect")
jnp.pad(r, (7, 3), "symmetric", reflect_type="odd") | jnp.pad(r[:1], 2, "reflect")
jnp.pad(x, ((1, 2), (3, 4)), "symmetric") | jnp.pad(r, (2, 3), "mean", stat_length=2)
jnp.pad(r, (2, 3), "maximum", stat_length=((1, 2),))
jnp.pad(r, 2, lambda row, width, axis, kw: row.at[:width[0]].set(7)) | jnp.pad(c, 1, "edge")
jnp.pad(e, ((1, 0), (0, 0))) | jnp.sort(v) | jnp.sort(n) | jnp.sort(n, axis=0) | jnp.sort(n, axis=None)
jnp.sort(n, descending=True) | jnp.sort(c) | jnp.sort(b) | x.sort(axis=0) | jnp.sort(v, stable=False)
jnp.sort(e, axis=0) | jnp.argsort(v) | jnp.argsort(v, descending=True) | jnp.argsort(v, descending=True, stable=False)
jnp.argsort(n) | jnp.argsort(n, descending=True) | jnp.argsort(u, descending=True) | jnp.argsort(b, descending=True)
v.argsort() | jnp.argsort(x, axis=None) | jnp.lexsort((v, np.array([1, 1, 0, 0]))) | jnp.lexsort((x, -x))
jnp.lexsort((x, x), axis=0) | jnp.partition(v, 2) | jnp.partition(x, 1, axis=0) | jnp.sort_complex(v)
jnp.searchsorted(r, v) | jnp.searchsorted(r, v, side="right") | jnp.searchsorted(r, n)
jnp.searchsorted(jnp.sort(n[0]), n) | jnp.searchsorted(jnp.sort(n[0]), n, side="right")
jnp.searchsorted(jnp.sort(n[0]), n, method="sort") | jnp.searchsorted(jnp.sort(v), w, side="right", method="sort")
jnp.searchsorted(jnp.sort(v), w, method="compare_all") | jnp.searchsorted(v, 2, sorter=jnp.argsort(v))
r.searchsorted(2.5) | jnp.searchsorted(e[:, 0], 1.0) | list(jnp.nonzero(v - 1, size=4, fill_value=-1))
list(jnp.nonzero(n, size=9, fill_value=(7, 8))) | list(jnp.nonzero(n, size=2)) | list(v.nonzero(size=3))
jnp.argwhere(n, size=3, fill_value=5) | jnp.flatnonzero(n, size=5) | list(jnp.nonzero(e, size=2))
jnp.compress(b[:2], x, axis=0, size=2, fill_value=9) | jnp.extract(n > 1, n, size=4)
x.compress(b[:3], axis=1, size=1) | jnp.choose(i % 2, [i, w], mode="clip") | jnp.choose(v, [1, 2.0], mode="wrap")
i.choose([1, 2], mode="clip") | jnp.choose(i[:, None], [x[0], x[1]], mode="clip")
list(jnp.unique(v, True, True, True, size=5)) | list(jnp.unique(v, True, True, True, size=5, fill_value=-1))
list(jnp.unique(v, True, True, True, size=2)) | jnp.unique(n, size=6) | jnp.unique(n, equal_nan=False, size=6)
list(jnp.unique(x % 2, True, True, True, axis=1, size=3)) | list(jnp.unique_all(v, size=4))
list(jnp.unique_counts(v, size=4)) | list(jnp.unique_inverse(x, size=4)) | jnp.unique_values(v, size=2)
jnp.unique(e, size=2, fill_value=1) | jnp.isin(v, w) | jnp.isin(n, np.array([np.nan, 0.0]))
jnp.isin(v, 1, invert=True) | jnp.isin(x, jnp.arange(40)) | jnp.isin(2, r) | jnp.isin(v, e)
jnp.isin(v, jnp.arange(1, 50, 2)) | jnp.union1d(v, w, size=6) | jnp.union1d(v, w, size=6, fill_value=0)
jnp.intersect1d(v, w, size=3) | list(jnp.intersect1d(v, w, size=3, fill_value=-1, return_indices=True))
jnp.intersect1d(v, r[3:], size=2) | jnp.setdiff1d(v, w, size=4) | jnp.setdiff1d(v, w, size=4, fill_value=-1)
jnp.setdiff1d(v, v, size=2) | jnp.setxor1d(v, w, size=5) | jnp.setxor1d(v, w, size=5, fill_value=-1)
jnp.setxor1d(v, v, size=2) | x.astype(int) | x.astype(None) | c.astype("float32") | n.astype(bool) | c.astype(bool)
jnp.asarray(1.0).astype("float32") | jnp.astype(v, "uint8") | x.view("int32") | x.view("int16")
x[0, 0].view("int32") | b.view("uint8") | jnp.arange(4, dtype="int8").view("int16") | x[:, :2].view("complex64")
c.view("float32") | u.view("bool") | x.view() | x.copy() | c.real | c.imag | x.imag | x.all(axis=0) | x.any()
x.argmax(axis=1) | x.argmin() | x.clip(1, 3) | c.conj() | c.conjugate() | x.cumprod(axis=1) | x.cumsum()
x.diagonal() | x.dot(x.T) | x.max(axis=0) | x.mean() | x.min() | x.prod() | x.ptp() | x.round() | x.std()
x.sum(axis=1, keepdims=True) | x.var(ddof=1)
jnp.moveaxis(y, range(2), [1, 2]) | jnp.transpose(y, np.array([1, 0, 2])) | jnp.delete(r, np.array([[0], [1]]))
jnp.tri(3, k=s) | jnp.eye(2, k=2**100) | jnp.eye(3, k=s) | jnp.linspace(x, np.float32(3), 1, retstep=True)[1]
jnp.expand_dims(x, range(2))
"""
# Expressions whose shapes depend on values.
CONCRETE = """
jnp.trim_zeros(v - 1) | jnp.trim_zeros(np.array([0, 1, 0, 2, 0]), "f") | jnp.trim_zeros(np.zeros(3))
list(jnp.nonzero(v - 1)) | jnp.argwhere(n) | jnp.flatnonzero(n) | jnp.argwhere(3.0) | list(x.nonzero())
jnp.compress(b[:2], x, axis=0) | jnp.compress(b, x) | x.compress(b[:2], axis=0) | jnp.extract(n > 1, n)
jnp.choose(i % 2, [i, w]) | i.choose([1, 2, 3]) | jnp.ravel_multi_index((v % 2, v), (2, 4))
jnp.repeat(x, i[:2], axis=0) | jnp.unique(v) | list(jnp.unique(v, True, True, True)) | jnp.unique(n)
jnp.unique(n, equal_nan=False) | list(jnp.unique(x % 2, True, True, True, axis=1))
list(jnp.unique(e, True, True, True)) | jnp.unique(c) | jnp.unique(b) | list(jnp.unique_all(n)) | jnp.union1d(v, w)
jnp.intersect1d(v, w) | list(jnp.intersect1d(v, w, return_indices=True)) | jnp.setdiff1d(v, w)
jnp.setdiff1d(v, w, True) | jnp.setxor1d(v, w) | list(x) | 3.0 in x[1] | 9 in v
list(jnp.mask_indices(3, jnp.triu, 1)) | x.trace() | x.trace(1, 1, 0) | list(jnp.where(v > 1))
jnp.insert(v, w[:2], 1) | jnp.delete(v, i)
"""
ERRORS = """
jnp.fill_diagonal(x, 1) | jnp.fill_diagonal(v, 1, inplace=False) | jnp.fill_diagonal(y, 1, inplace=False)
jnp.place(x, x > 1, 1) | jnp.place(x, v > 1, 1, inplace=False) | jnp.apply_over_axes(jnp.sum, x, (5,))
jnp.apply_along_axis(jnp.sum, 5, x) | jnp.reshape([1, 2], 2) | x.reshape(4) | x.reshape(-1, -1) | x.reshape(-2, 3)
x.reshape(2.0, 3) | x.reshape(3, 2, order="A") | x.reshape(3, 2, order="Q") | x.ravel("K") | x.transpose(0)
x.transpose(0, 0) | x[0].mT | x.squeeze(0) | jnp.moveaxis(x, 0, 5) | x.swapaxes(0, 9) | jnp.rollaxis(x, 1, 5)
jnp.expand_dims(x, (0, 0)) | jnp.expand_dims(x, 5) | jnp.broadcast_to(x, (3,)) | jnp.broadcast_to(x, (2, 2))
jnp.broadcast_shapes((2,), (3,)) | jnp.broadcast_arrays(x, w[:2]) | jnp.flip(x, 3) | jnp.fliplr(v) | jnp.rot90(v)
jnp.rot90(x, axes=(0, 0)) | jnp.roll(x, (1, 2, 3), axis=(0, 1)) | jnp.tile(x, 1.5) | jnp.repeat(x, 2, axis=5)
jnp.repeat(x, i, axis=0) | jnp.repeat(x, [1, 2], axis=0) | jnp.concatenate([]) | jnp.concatenate([1.0, 2.0])
jnp.concatenate([x, v]) | jnp.concatenate([x, x.T]) | jnp.concatenate([[1], [2]]) | jnp.concatenate(3)
jnp.concatenate("ab") | jnp.stack([x, x.T]) | jnp.stack([]) | jnp.stack([x], axis=4) | jnp.split(x, 4)
jnp.split(v, [3, 1]) | jnp.unstack(1.0) | jnp.append(x, 1.0, axis=1) | jnp.delete(v, 7) | jnp.delete(v, [1])
jnp.resize(x, (-1,)) | jnp.block((x,)) | jnp.block([]) | jnp.ix_(x) | jnp.take(x, 1.0) | jnp.take(x, [1])
jnp.take(x, 1, mode="no") | jnp.take_along_axis(x, i, 1) | jnp.take_along_axis(x, x, 1)
jnp.put_along_axis(x, i[None], 1, axis=1) | jnp.put(x, i, 1) | jnp.ravel_multi_index((v, v), (2, 3))
jnp.pad(v, (-1, 2)) | jnp.pad(v, 1, mode="no") | jnp.pad(v, 1, no=3) | jnp.pad(e, 1, "edge") | jnp.pad(v, 1.5)
jnp.pad(v, ((1, 1), (1, 1))) | jnp.pad(v, 1, "mean", stat_length=0) | jnp.sort(1.0) | jnp.sort(v, kind="stable")
jnp.sort([1]) | jnp.sort(v, axis=3) | jnp.partition(v, 7) | jnp.lexsort(()) | jnp.searchsorted(v, 2, side="no")
jnp.searchsorted(v, 2, method="no") | jnp.searchsorted(x, 2) | jnp.nonzero(5) | jnp.nonzero([1])
jnp.compress([True], x) | jnp.compress(x > 1, x) | jnp.choose(i * 9, [1, 2]) | jnp.choose(x, [1, 2])
jnp.unique(e, size=2) | jnp.unique([1]) | x[0, 0].view("int16") | x.astype("int8").view("int16")
x.view("int32", type=3) | x.astype("no") | x.flat | list(x[0, 0]) | x.item() | len(x[0, 0]) | jnp.isin([1], v)
hash(x)
"""
TRACED_ERRORS = ["jnp.nonzero(v)", "jnp.unique(v)", "jnp.setdiff1d(v, w)", "jnp.repeat(v, v)", "jnp.choose(v, [1, 2])",
                 "jnp.compress(b, v)", "jnp.argwhere(v)", "jnp.intersect1d(v, w)", "jnp.union1d(v, w)"]


def expressions(table):
    return [text.strip() for line in table.strip().splitlines() for text in line.split(" | ")]


def run(jnp, text, arrays):
    result = eval(text, {"jnp": jnp, "np": np, **arrays})
    return list(result) if isinstance(result, (tuple, list)) else [result]


def as_arrays(jnp):
    return {name: jnp.asarray(a) for name, a in ARRAYS.items()}


def same(text, ours, theirs):
    assert len(ours) == len(theirs), text
    for a, b in zip(ours, theirs):
        if not isinstance(b, Given):
            assert a == b and type(a) is type(b), text
            continue
        assert a.aval.shape == b.shape, text
        assert a.aval.dtype == b.dtype, (text, a.aval, b)
        assert a.aval.weak_type == b.weak_type, (text, a.aval, b)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-6, atol=0, err_msg=text)


def in_jax(text, oracle):
    return oracle(lambda: run(jax.numpy, text, as_arrays(jax.numpy)))


@pytest.mark.parametrize("start", range(0, len(expressions(TRACED)), 12))
def test_in_one_program(start, oracle):
    """Compiled together, a dozen at a time: values, dtypes, weak types, shapes."""
    texts = expressions(TRACED)[start:start + 12]
    ours = ricalco.jit(lambda arrays: [run(ricalco.numpy, t, arrays) for t in texts])(ARRAYS)
    theirs = oracle(lambda: jax.jit(lambda arrays: [run(jax.numpy, t, arrays) for t in texts])(ARRAYS))
    for text, a, b in zip(texts, ours, theirs, strict=True):
        same(text, a, b)


@pytest.mark.parametrize("text", expressions(CONCRETE))
def test_eager(text, oracle):
    same(text, run(ricalco.numpy, text, as_arrays(ricalco.numpy)), in_jax(text, oracle))


@pytest.mark.parametrize("text", expressions(TRACED)[::9])
def test_eager_sample(text, oracle):
    """Eagerly, a function of several operations is one program of the same meaning."""
    same(text, run(ricalco.numpy, text, as_arrays(ricalco.numpy)), in_jax(text, oracle))


@pytest.mark.parametrize("text", expressions(ERRORS))
def test_error(text, oracle):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = oracle.error(lambda: run(jax.numpy, text, as_arrays(jax.numpy)))
        with pytest.raises(theirs.builtin):
            run(ricalco.numpy, text, as_arrays(ricalco.numpy))


@pytest.mark.parametrize("text", TRACED_ERRORS)
def test_traced_error(text, oracle):
    with pytest.raises(ricalco.errors.ConcretizationTypeError):
        ricalco.make_jaxpr(lambda arrays: run(ricalco.numpy, text, arrays))(ARRAYS)
    theirs = oracle.error(lambda: jax.make_jaxpr(lambda arrays: run(jax.numpy, text, arrays))(ARRAYS))
    assert "jax.errors.ConcretizationTypeError" in theirs.names


def refused(m) -> list[str]:
    """The expressions that cannot be traced."""
    texts, found = [], []
    for text, function, arrays in every_expression(m.numpy):
        texts.append(text)
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            m.eval_shape(lambda a, f=function: [x for x in elementary.leaves(f(a)) if hasattr(x, "dtype")], arrays)
            found.append(text)
    return sorted(set(texts) - set(found))


def every_expression(jnp):
    names = {name: getattr(jnp, name) for name in ricalco.numpy.__all__ if hasattr(jnp, name)} | {"jnp": jnp, "np": np}
    for text in (*elementary.UFUNCS, *elementary.REDUCTIONS, *elementary.STATISTICS, *elementary.PRODUCTS,
                 *elementary.CREATION):
        yield text, lambda a, text=text: eval(text, {**names, **a}), elementary.INPUTS
    for text in expressions(TRACED):
        yield text, lambda a, text=text: run(jnp, text, a), ARRAYS


@pytest.mark.parametrize(("setting", "value"), [("numpy_dtype_promotion", "strict"), ("numpy_rank_promotion", "raise")])
def test_a_strict_setting_is_about_the_users_arguments(setting, value, oracle):
    """What JAX accepts under it is not refused because of what our own code mixes."""
    def theirs():
        with getattr(jax, setting)(value):
            return refused(jax)

    with options.override(**{setting: value}):
        assert not set(refused(ricalco)) - set(oracle(theirs))
