"""What an operation is, who interprets it now, what stands in for a value, and the error tree."""
from ricalco.core.primitive import Linear, No, Primitive, Zero
from ricalco.core.trace import Trace, Tracer, eager_trace, interpreting, set_eager_trace, state
from ricalco.core.values import Array

__all__ = ["Array", "Linear", "No", "Primitive", "Trace", "Tracer", "Zero", "eager_trace", "interpreting",
           "set_eager_trace", "state"]
