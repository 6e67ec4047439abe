"""The language of programs: ``import crossrank.program.language as pl``.

A program is a class that `program` decorates; its methods, which `function` decorates, are parsed, never run. What
ranks share and say to each other is in `distributed`.
"""

from crossrank.program.kinds import AtomicType as AtomicType
from crossrank.program.kinds import FunctionType as FunctionType
from crossrank.program.kinds import Level as Level
from crossrank.program.kinds import MemorySpace as MemorySpace
from crossrank.program.kinds import PadValue as PadValue
from crossrank.program.kinds import Role as Role
from crossrank.program.kinds import TensorLayout as TensorLayout
from crossrank.program.language import array as array
from crossrank.program.language import system as system
from crossrank.program.language import tensor as tensor
from crossrank.program.language import tile as tile
from crossrank.program.language.annotations import InOut as InOut
from crossrank.program.language.annotations import Out as Out
from crossrank.program.language.annotations import Scalar as Scalar
from crossrank.program.language.annotations import Tensor as Tensor
from crossrank.program.language.annotations import TensorView as TensorView
from crossrank.program.language.annotations import Tile as Tile
from crossrank.program.language.control import at as at
from crossrank.program.language.control import const as const
from crossrank.program.language.control import dynamic as dynamic
from crossrank.program.language.control import manual_scope as manual_scope
from crossrank.program.language.control import no_dep as no_dep
from crossrank.program.language.control import parallel as parallel
from crossrank.program.language.control import range_ as range  # noqa: F401
from crossrank.program.language.control import spmd as spmd
from crossrank.program.language.control import spmd_submit as spmd_submit
from crossrank.program.language.control import submit as submit
from crossrank.program.language.control import unroll as unroll
from crossrank.program.language.control import yield_ as yield_
from crossrank.program.language.declare import function as function
from crossrank.program.language.declare import program as program
from crossrank.program.language.dtypes import BF16 as BF16
from crossrank.program.language.dtypes import BOOL as BOOL
from crossrank.program.language.dtypes import FP16 as FP16
from crossrank.program.language.dtypes import FP32 as FP32
from crossrank.program.language.dtypes import FP64 as FP64
from crossrank.program.language.dtypes import INDEX as INDEX
from crossrank.program.language.dtypes import INT8 as INT8
from crossrank.program.language.dtypes import INT16 as INT16
from crossrank.program.language.dtypes import INT32 as INT32
from crossrank.program.language.dtypes import INT64 as INT64
from crossrank.program.language.dtypes import UINT8 as UINT8
from crossrank.program.language.dtypes import UINT16 as UINT16
from crossrank.program.language.dtypes import UINT32 as UINT32
from crossrank.program.language.dtypes import UINT64 as UINT64
from crossrank.program.language.unified import *  # noqa: F403
