"""crossrank: a compiler and runtime for collective communication."""

__version__ = "0.1.0"
