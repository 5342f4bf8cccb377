"""Calls of the primitives that arrange elements: shapes, slices, gather, scatter."""
from __future__ import annotations

from functools import partial

import ml_dtypes
import numpy as np

from ricalco.ops import arithmetic
from ricalco.ops.gather import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers, combination
from tests.cases import Case

CLIP, FILL, PROMISE = GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP, GatherScatterMode.PROMISE_IN_BOUNDS
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


def numbers(shape, dtype=F32, start: float = 1.0) -> np.ndarray:
    """Different values: 1, -2.5, 4, -5.5, ..."""
    count = np.arange(int(np.prod(shape)))
    values = (start + 1.5 * count) * np.where(count % 2, -1, 1)
    if np.dtype(dtype).kind == "u":
        values = np.abs(values)
    if np.dtype(dtype).kind == "b":
        values = count % 3 == 0
    return values.astype(dtype).reshape(shape)


def index(values, dtype=np.int32) -> np.ndarray:
    return np.asarray(values, dtype)


KINDS = [np.dtype(np.float16), BFLOAT16, np.dtype(np.int8), np.dtype(np.uint32), np.dtype(np.bool_),
         np.dtype(np.complex64)]


def each_kind(primitive: str, shape, params, extra=(), batchable: bool = True) -> list[Case]:
    """The call on an array of each kind of dtype; `extra` makes the further operands from the dtype."""
    return [Case(primitive, (numbers(shape, dtype), *[x(dtype) if callable(x) else x for x in extra]), params,
                 batchable=batchable) for dtype in KINDS]


SQUEEZE = [
    Case("squeeze", (numbers((1, 3, 1), F64),), {"dimensions": (0, 2)}, differentiable=True),
    Case("squeeze", (numbers((1,)),), {"dimensions": (0,)}),
    Case("squeeze", (numbers((0, 1)),), {"dimensions": (1,)}),
    *each_kind("squeeze", (2, 1), {"dimensions": (1,)}),
]

CONCATENATE = [
    Case("concatenate", (numbers((2, 3)), numbers((1, 3), start=9)), {"dimension": 0}, differentiable=True),
    Case("concatenate", (numbers((2, 1)), numbers((2, 0)), numbers((2, 2), start=9)), {"dimension": 1},
         differentiable=True),
    Case("concatenate", (numbers((2,)),), {"dimension": 0}),
    *[Case("concatenate", (numbers((2,), d), numbers((1,), d)), {"dimension": 0}, batchable=False) for d in KINDS],
]

SPLIT = [
    Case("split", (numbers((2, 5)),), {"sizes": (2, 0, 3), "axis": 1}, differentiable=True),
    Case("split", (numbers((3,)),), {"sizes": (3,), "axis": 0}),
    *each_kind("split", (3,), {"sizes": (1, 2), "axis": 0}, batchable=False),
]

REV = [
    Case("rev", (numbers((2, 3)),), {"dimensions": (1,)}, differentiable=True),
    Case("rev", (numbers((2, 3)),), {"dimensions": (0, 1)}),
    Case("rev", (numbers(()),), {"dimensions": ()}),
    Case("rev", (numbers((0, 2)),), {"dimensions": (0,)}),
    *each_kind("rev", (3,), {"dimensions": (0,)}, batchable=False),
]

IOTA = [Case("iota", (), {"dtype": np.dtype(d), "shape": shape, "dimension": dimension}, batchable=False)
        for d, shape, dimension in [("int32", (3,), 0), ("float32", (2, 3), 1), ("uint8", (2, 3), 0),
                                    ("int64", (0,), 0), (BFLOAT16, (4,), 0), ("float16", (4,), 0),
                                    ("complex64", (3,), 0),
                                    ("int8", (2, 0, 2), 2)]]

TILE = [
    Case("tile", (numbers((2, 3)),), {"reps": (2, 3)}, differentiable=True),
    Case("tile", (numbers(()),), {"reps": ()}),
    Case("tile", (numbers((2, 1)),), {"reps": (0, 2)}, differentiable=True),
    Case("tile", (numbers((0, 2)),), {"reps": (2, 2)}),
    *each_kind("tile", (2,), {"reps": (2,)}, batchable=False),
]

PAD = [
    Case("pad", (numbers((2, 3)), np.float32(7)), {"padding_config": ((1, 2, 0), (0, 1, 2))}, differentiable=True),
    Case("pad", (numbers((4, 3)), np.float32(7)), {"padding_config": ((-1, 1, 1), (2, -2, 0))}, differentiable=True),
    Case("pad", (numbers((3,)), np.float32(7)), {"padding_config": ((-2, -3, 1),)}, differentiable=True),
    Case("pad", (numbers((0,)), np.float32(7)), {"padding_config": ((1, 2, 3),)}, differentiable=True),
    Case("pad", (numbers(()), np.float32(7)), {"padding_config": ()}),
    *[Case("pad", (numbers((2,), d), numbers((), d, start=7)), {"padding_config": ((1, 0, 1),)}) for d in KINDS],
]


def _slice(start, limit, strides=None) -> dict:
    return {"start_indices": start, "limit_indices": limit, "strides": strides}


SLICE = [
    Case("slice", (numbers((3, 5)),), _slice((1, 0), (3, 4)), differentiable=True),
    Case("slice", (numbers((3, 6)),), _slice((0, 1), (3, 6), (2, 3)), differentiable=True),
    Case("slice", (numbers((7,)),), _slice((1,), (6,), (2,)), differentiable=True),
    Case("slice", (numbers((4,)),), _slice((2,), (2,), (3,)), differentiable=True),
    Case("slice", (numbers((0, 2)),), _slice((0, 0), (0, 1))),
    Case("slice", (numbers(()),), _slice((), ())),
    *each_kind("slice", (3,), _slice((1,), (3,)), batchable=False),
]

DYNAMIC_SLICE = [
    Case("dynamic_slice", (numbers((3, 4)), index(1), index(2)), {"slice_sizes": (2, 1)}, differentiable=(0,)),
    Case("dynamic_slice", (numbers((3, 4)), index(-5), index(9)), {"slice_sizes": (2, 3)}, differentiable=(0,)),
    Case("dynamic_slice", (numbers((3,)), index(2, np.uint8)), {"slice_sizes": (2,)}),
    Case("dynamic_slice", (numbers((3,)), index(2 ** 32 - 1, np.uint32)), {"slice_sizes": (2,)}),
    Case("dynamic_slice", (numbers((200,)), index(-100, np.int8)), {"slice_sizes": (2,)}),
    Case("dynamic_slice", (numbers((3,)), index(1, np.int64)), {"slice_sizes": (0,)}),
    Case("dynamic_slice", (numbers((0, 2)), index(1), index(1)), {"slice_sizes": (0, 1)}),
    Case("dynamic_slice", (numbers(()),), {"slice_sizes": ()}),
    *each_kind("dynamic_slice", (3,), {"slice_sizes": (2,)}, (index(1),), batchable=False),
]

DYNAMIC_UPDATE_SLICE = [
    Case("dynamic_update_slice", (numbers((3, 4)), numbers((2, 1), start=40), index(1), index(2)),
         differentiable=(0, 1)),
    Case("dynamic_update_slice", (numbers((3, 4)), numbers((2, 3), start=40), index(-5), index(9)),
         differentiable=(0, 1)),
    Case("dynamic_update_slice", (numbers((3,)), numbers((2,), start=40), index(2 ** 32 - 1, np.uint32))),
    Case("dynamic_update_slice", (numbers((3,)), numbers((0,)), index(1, np.int8))),
    Case("dynamic_update_slice", (numbers((0, 2)), numbers((0, 1)), index(0), index(1))),
    Case("dynamic_update_slice", (numbers(()), numbers((), start=5))),
    *each_kind("dynamic_update_slice", (3,), {}, (lambda d: numbers((1,), d, start=9), index(1)), batchable=False),
]

ROWS_OF = GatherDimensionNumbers((1,), (0,), (0,))  # whole rows, named by one index
ELEMENTS = GatherDimensionNumbers((), (0,), (0,))  # elements of a vector
POINTS = GatherDimensionNumbers((), (0, 1), (0, 1))  # elements, named by two
WINDOWS = GatherDimensionNumbers((0, 2), (), (1, 0))  # windows that keep both dimensions, indices swapped
IN_STEP = GatherDimensionNumbers((), (1,), (1,), (0,), (0,))  # one element of each row


def _gather(dimension_numbers, slice_sizes, mode=PROMISE, fill_value=None, unique: bool = False) -> dict:
    return {"dimension_numbers": dimension_numbers, "slice_sizes": slice_sizes, "mode": mode, "fill_value": fill_value,
            "unique_indices": unique, "indices_are_sorted": False}


OUTSIDE = index([[1], [3], [-1], [0], [1]])
GATHER = [
    Case("gather", (numbers((3, 4)), index([[2], [0], [2]])), _gather(ROWS_OF, (1, 4)), differentiable=(0,)),
    Case("gather", (numbers((3, 4)), OUTSIDE), _gather(ROWS_OF, (1, 4), CLIP), differentiable=(0,)),
    Case("gather", (numbers((3, 4)), OUTSIDE), _gather(ROWS_OF, (1, 3), FILL, np.nan), differentiable=False),
    Case("gather", (numbers((3, 4)), OUTSIDE), _gather(ROWS_OF, (1, 3), FILL, 0), differentiable=(0,)),
    Case("gather", (numbers((3, 4)), index([[[2, 0], [1, 3]], [[0, 4], [-1, 0]]])), _gather(POINTS, (1, 1), FILL, 5)),
    Case("gather", (numbers((3, 4)), index([[1, 0], [3, 1], [2, 2]])), _gather(WINDOWS, (2, 2), CLIP),
         differentiable=(0,)),
    Case("gather", (numbers((3, 4)), index([[1, 0], [3, 1], [2, 2]])), _gather(WINDOWS, (2, 2), FILL, 9)),
    Case("gather", (numbers((3, 4)), index([[1], [0], [4]])), _gather(IN_STEP, (1, 1), FILL, -1)),
    Case("gather", (numbers((3, 4)), index([[1], [0], [3]])), _gather(IN_STEP, (1, 1), CLIP), differentiable=(0,)),
    Case("gather", (numbers((3,)), index([2 ** 32 - 1], np.uint32)), _gather(ELEMENTS, (1,), CLIP)),
    Case("gather", (numbers((3,)), index([2 ** 32 - 1], np.uint32)), _gather(ELEMENTS, (1,), FILL, 8)),
    Case("gather", (numbers((200,)), index([[127], [-128]], np.int8)),
         _gather(ELEMENTS, (1,), FILL, 8)),
    Case("gather", (numbers((3, 2)), np.zeros((2, 0), np.int32)),
         _gather(GatherDimensionNumbers((1, 2), (), ()), (2, 1), FILL, 8)),
    Case("gather", (numbers((3, 4)), np.zeros((0, 1), np.int32)), _gather(ROWS_OF, (1, 4), FILL, 8)),
    Case("gather", (numbers((2, 0)), index([[1]])), _gather(ROWS_OF, (1, 0), FILL, 8)),
    *[Case("gather", (numbers((3,), d), index([[1], [5]])),
           _gather(ELEMENTS, (1,), FILL, fill), batchable=False)
      for d, fill in zip(KINDS, [np.nan, np.nan, -128, 2 ** 32 - 1, True, np.nan])],
]


def _scatter(dimension_numbers, operation=None, dtype=F32, mode=FILL, unique: bool = False) -> dict:
    program = None if operation is None else combination(operation, np.dtype(dtype))
    return {"dimension_numbers": ScatterDimensionNumbers(*dimension_numbers), "mode": mode, "unique_indices": unique,
            "indices_are_sorted": False, "update_jaxpr": program, "update_consts": ()}


def _members(name: str, operation, *, unique_for_derivatives: bool = False, kinds=KINDS) -> list[Case]:
    """One member of the family over modes, windows, repeated places and dtypes."""
    params = partial(_scatter, operation=operation)
    derivative = partial(params, dtype=F64)
    unique = unique_for_derivatives
    x, rows = numbers((3, 4)), numbers((5, 4), start=0.5)
    wide = numbers((3, 4), F64)
    return [
        Case(name, (x, OUTSIDE, rows), params(ROWS_OF), name=f"{name} drop, repeated"),
        Case(name, (x, OUTSIDE, rows[:, :3]), params(ROWS_OF, mode=CLIP), name=f"{name} clip, repeated"),
        Case(name, (x, index([[1, 0], [3, 1], [2, 2]]), numbers((2, 3, 2), start=0.5)), params(WINDOWS, mode=FILL),
             name=f"{name} overlapping windows"),
        Case(name, (x, index([[1], [0], [4]]), numbers((3,), start=0.5)), params(IN_STEP), name=f"{name} in step"),
        Case(name, (numbers((3,)), index([[2 ** 32 - 1], [1]], np.uint32), numbers((2,))),
             params(ELEMENTS, mode=CLIP), name=f"{name} uint32 clip"),
        Case(name, (numbers((3,)), index([[2 ** 32 - 1], [1]], np.uint32), numbers((2,))),
             params(ELEMENTS), name=f"{name} uint32 drop"),
        Case(name, (numbers((200,)), index([[-128], [1]], np.int8), numbers((2,))),
             params(ELEMENTS, mode=CLIP), name=f"{name} int8 clip"),
        Case(name, (x, np.zeros((0, 1), np.int32), rows[:0]), params(ROWS_OF), name=f"{name} no updates"),
        Case(name, (x[:, :0], index([[1]]), rows[:1, :0]), params(ROWS_OF), name=f"{name} empty"),
        Case(name, (wide, index([[2], [5], [0]]), numbers((3, 4), F64, start=0.25)), derivative(ROWS_OF, unique=unique),
             differentiable=(0, 2), batchable=False, name=f"{name} derivative, drop"),
        Case(name, (wide, index([[1], [9]]), numbers((2, 3), F64, start=0.25)),
             derivative(ROWS_OF, mode=CLIP, unique=unique), differentiable=(0, 2), batchable=False,
             name=f"{name} derivative, clip"),
        Case(name, (wide, index([[1], [0], [3]]), numbers((3,), F64, start=0.25)), derivative(IN_STEP, unique=unique),
             differentiable=(0, 2), batchable=False, name=f"{name} derivative, in step"),
        *[Case(name, (numbers((3,), d), index([[1], [0]]), numbers((2,), d, start=2)),
               params(ELEMENTS, dtype=d), batchable=False) for d in kinds],
    ]


_NUMERIC = [d for d in KINDS if d.kind != "b"]
_ORDERED = [d for d in KINDS if d.kind != "c"]
# Several updates for one element: derivatives follow the one that stays, or each that reaches the extremum.
REPEATED = [Case(name, (numbers((3, 4), F64), index([[2], [0], [2]]), numbers((3, 4), F64, start=0.25)),
                 _scatter(ROWS_OF, operation, F64), differentiable=(0, 2), batchable=False,
                 name=f"{name} derivative, repeated")
            for name, operation in [("scatter", None), ("scatter-add", arithmetic.add), ("scatter-sub", arithmetic.sub),
                                    ("scatter-min", arithmetic.min), ("scatter-max", arithmetic.max)]]

def _broadcast(x, shape, dimensions, **extra) -> Case:
    return Case("broadcast_in_dim", (x,), {"shape": shape, "broadcast_dimensions": dimensions}, **extra)


STRUCTURE = [
    *each_kind("broadcast_in_dim", (3,), {"shape": (2, 3), "broadcast_dimensions": (1,)}),
    _broadcast(numbers(()), (2, 3), (), differentiable=True),
    _broadcast(numbers((3,)), (3, 2), (0,), differentiable=True),
    _broadcast(numbers((2, 1, 3)), (4, 2, 5, 3), (1, 2, 3), differentiable=True),
    _broadcast(numbers((1,)), (0, 2), (0,)),
    *each_kind("reshape", (2, 3), {"new_sizes": (3, 2), "dimensions": None}),
    *[Case("reshape", (numbers(old),), {"new_sizes": new, "dimensions": None}, differentiable=True)
      for old, new in (((2, 3), (6,)), ((), (1, 1)), ((1,), ()), ((0, 3), (2, 0)))],
    *each_kind("transpose", (2, 3), {"permutation": (1, 0)}),
    *[Case("transpose", (numbers(shape),), {"permutation": order}, differentiable=True)
      for shape, order in (((2, 3, 4), (2, 0, 1)), ((2, 3, 4), (0, 2, 1)), ((2, 0), (1, 0)), ((), ()))],
]

ROWS: list[Case] = [
    *STRUCTURE, *SQUEEZE, *CONCATENATE, *SPLIT, *REV, *IOTA, *TILE, *PAD, *SLICE, *DYNAMIC_SLICE,
    *DYNAMIC_UPDATE_SLICE, *GATHER,
    *_members("scatter", None),
    *_members("scatter-add", arithmetic.add, kinds=_NUMERIC),
    *_members("scatter-sub", arithmetic.sub, kinds=_NUMERIC),
    *_members("scatter-mul", arithmetic.mul, kinds=_NUMERIC, unique_for_derivatives=True),
    *_members("scatter-min", arithmetic.min, kinds=_ORDERED),
    *_members("scatter-max", arithmetic.max, kinds=_ORDERED),
    *REPEATED,
]
