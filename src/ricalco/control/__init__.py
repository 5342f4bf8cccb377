"""Higher-order primitives: nested `jit`, conditionals, loops and custom rules. They hold programs, and so need the
transforms. Doors import each from its file: what a program does not use is not loaded."""
