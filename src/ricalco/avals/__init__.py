"""What an array value is: shape, dtype, weak-type flag; promotion; pytrees."""
from ricalco.avals.shaped import ShapedArray, python_aval, shaped, tangent_aval, types_differ

__all__ = ["ShapedArray", "python_aval", "shaped", "tangent_aval", "types_differ"]
