"""``pl.tile``: the words of tiles."""

from crossrank.program.language.arithmetic import *  # noqa: F403
from crossrank.program.language.memory import *  # noqa: F403
from crossrank.program.language.memory import create_tile as create  # noqa: F401
