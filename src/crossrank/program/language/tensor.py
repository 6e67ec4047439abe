"""``pl.tensor``: the words of tensors; what computes gives tiles."""

from crossrank.program.language.arithmetic import *  # noqa: F403
from crossrank.program.language.memory import *  # noqa: F403
from crossrank.program.language.memory import create_tensor as create  # noqa: F401
