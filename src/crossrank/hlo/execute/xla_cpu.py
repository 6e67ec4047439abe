"""Compiling a run form with XLA:CPU for N devices of this process, and running it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
import jax._src.interpreters.mlir as jax_mlir
import numpy as np
import numpy.typing as npt
from jax._src.lib import xla_client
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import lapack
from jaxlib.mlir import ir

from crossrank.errors import InputError
from crossrank.hlo import xla
from crossrank.hlo.module import Module

Array = npt.NDArray[Any]


def prepare_library_calls(module: Module) -> None:
    """Load LAPACK where ``module`` calls it: JAX does so only when it traces a call, and its functions crash before."""
    for i in module.instructions():
        if i.opcode == "custom-call" and i.proto.custom_call_target.startswith("lapack_"):
            lapack.prepare_lapack_call("potrf_ffi", np.float32)
            return


class Executable:
    """A module compiled for ``ranks`` replicas, on as many devices from ``first`` on."""

    def __init__(self, data: bytes, ranks: int, what: str, first: int = 0) -> None:
        try:
            mlir = xla.proto_to_mlir(data)
        except ValueError as error:
            raise InputError(f"XLA cannot turn {what} into StableHLO: {error}") from None
        options = xla_client.CompileOptions()
        options.num_replicas, options.num_partitions = ranks, 1
        build = options.executable_build_options
        build.num_replicas, build.num_partitions, build.use_spmd_partitioning = ranks, 1, False
        build.device_assignment = xla_client.DeviceAssignment.create(first + np.arange(ranks).reshape(ranks, 1))
        devices = jax.devices()[first : first + ranks]
        try:
            with jax_mlir.make_ir_context():
                module = ir.Module.parse(mlir)
        except ir.MLIRError as error:
            why = "; ".join(d.message for d in error.error_diagnostics) or str(error)
            raise InputError(f"XLA does not accept {what}: {why.splitlines()[0][:300]}") from None
        try:
            self._exe = devices[0].client.compile_and_load(module, xla_client.DeviceList(tuple(devices)), options)
        except jax.errors.JaxRuntimeError as error:
            raise InputError(f"XLA:CPU cannot compile {what}: {str(error).splitlines()[0][:300]}") from None

    def run(self, arguments: Sequence[Any]) -> tuple[float, list[list[Any]]]:
        """Run once; returns the seconds until every output was there, and the outputs by index and rank, on devices."""
        start = time.perf_counter()
        outputs = self._exe.execute_sharded(list(arguments)).disassemble_into_single_device_arrays()
        for by_rank in outputs:
            for a in by_rank:
                a.block_until_ready()
        return time.perf_counter() - start, outputs


def place(by_rank: Sequence[Array]) -> Any:
    """One array for each rank as one argument: rank r's lies on device r."""
    n = len(by_rank)
    devices = jax.devices()[:n]
    mesh = Mesh(np.array(devices), ("rank",))
    first = by_rank[0]
    # the shards need not agree with one another: only that there is one on each device matters
    if first.ndim and first.shape[0]:
        shape, spec = (first.shape[0] * n, *first.shape[1:]), PartitionSpec("rank")
    else:
        shape, spec = first.shape, PartitionSpec()
    shards = [jax.device_put(x, d) for x, d in zip(by_rank, devices, strict=True)]
    return jax.make_array_from_single_device_arrays(shape, NamedSharding(mesh, spec), shards)


def fetch(outputs: Sequence[Sequence[Any]]) -> list[list[Array]]:
    """Outputs as NumPy arrays, by index and rank."""
    return [[np.asarray(a) for a in by_rank] for by_rank in outputs]
