"""StableHLO text: SSA names, types, attributes, regions, exact literals. Knows no primitive."""
from calco.hlo.builder import Block, Module, Value, bool_array, i64_array, integers, symbol

__all__ = ["Block", "Module", "Value", "bool_array", "i64_array", "integers", "symbol"]
