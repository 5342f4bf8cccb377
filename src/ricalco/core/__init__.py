"""What an operation is, who interprets it now, what stands in for a value, and the error tree."""
from ricalco.core.primitive import Linear, More, No, Primitive, Runs, SubProgram, Zero, run_once
from ricalco.core.trace import Trace, Tracer, eager_trace, interpreting, set_eager_trace, state
from ricalco.core.values import Array

__all__ = ["Array", "Linear", "More", "No", "Primitive", "Runs", "SubProgram", "Trace", "Tracer", "Zero",
           "eager_trace", "interpreting", "run_once", "set_eager_trace", "state"]
