"""StableHLO text: SSA names, types, attributes, regions, exact literals. Knows no primitive."""
from ricalco.hlo.builder import TOKEN, Block, Module, Target, Value, bool_array, i64_array, integers, symbol

__all__ = ["TOKEN", "Block", "Module", "Target", "Value", "bool_array", "i64_array", "integers", "symbol"]
