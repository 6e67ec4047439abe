"""``pl``: the words of tensors, tiles and scalars."""

from crossrank.program.language.arithmetic import *  # noqa: F403
from crossrank.program.language.memory import *  # noqa: F403
from crossrank.program.language.system import get_block_idx as get_block_idx
from crossrank.program.language.system import get_block_num as get_block_num
