"""A mixture of experts, one on each rank: tokens travel to their expert and back with all-to-all, checked against all
experts on one device.

    python examples/moe_all_to_all.py
    crossrank jax examples/moe_all_to_all.py
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

TOKENS, WIDTH, HIDDEN = 64, 32, 128  # tokens of one rank
AXIS = "expert"


def expert(x, up, down):
    return jax.nn.gelu(x @ up) @ down


def route(x, router):
    """For each token its expert, its place among that expert's tokens, and its weight."""
    scores = jax.nn.softmax(x @ router)
    chosen = jnp.argmax(scores, axis=-1)
    one_hot = jax.nn.one_hot(chosen, router.shape[1], dtype=jnp.int32)
    place = jnp.sum((jnp.cumsum(one_hot, axis=0) - 1) * one_hot, axis=-1)
    return chosen, place, jnp.max(scores, axis=-1)


def layer(x, router, up, down):
    """One rank's tokens through everybody's experts; there is room for all of them with each."""
    ranks = router.shape[1]
    chosen, place, weight = route(x, router)
    sent = jnp.zeros((ranks, TOKENS, WIDTH)).at[chosen, place].set(x)
    received = jax.lax.all_to_all(sent, AXIS, 0, 0, tiled=True)
    worked = expert(received, up[0], down[0])
    returned = jax.lax.all_to_all(worked, AXIS, 0, 0, tiled=True)
    load = jax.lax.psum(jnp.bincount(chosen, length=ranks), AXIS)
    return returned[chosen, place] * weight[:, None], load


def setup():
    """The jitted layer, and its arguments."""
    mesh = Mesh(np.array(jax.devices()), (AXIS,))
    rng = np.random.default_rng(0)
    shapes = ((TOKENS * mesh.size, WIDTH), (WIDTH, mesh.size), (mesh.size, WIDTH, HIDDEN), (mesh.size, HIDDEN, WIDTH))
    arguments = [rng.normal(0, 0.3, shape).astype(np.float32) for shape in shapes]
    specs = (P(AXIS), P(), P(AXIS), P(AXIS))
    return jax.jit(jax.shard_map(layer, mesh=mesh, in_specs=specs, out_specs=(P(AXIS), P()))), arguments


def reference(x, router, up, down):
    """The same on one device, token by token."""
    chosen, _, weight = route(x, router)
    return jax.vmap(lambda t, e: expert(t, up[e], down[e]))(x, chosen) * weight[:, None]


def main():
    moe, arguments = setup()
    output, load = moe(*arguments)
    expected = jax.jit(reference)(*arguments)
    error = float(jnp.max(jnp.abs(output - expected)) / jnp.max(jnp.abs(expected)))
    print("tokens of each expert:", *np.asarray(load))
    print(f"checksum {np.asarray(output, np.float64).sum():.10f}, largest relative error {error:.1e}")
    assert error < 1e-5, "the experts' answers went astray"


if __name__ == "__main__":
    main()
