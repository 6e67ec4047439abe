"""Transformer layers, data and tensor parallel in shard_map, with their gradients: heads and hidden units are spread
over `model`, the batch over `data`, and psums say where partial results meet.

    python examples/tp_transformer.py
    crossrank jax examples/tp_transformer.py
"""

import argparse
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

WIDTH, HEADS, HIDDEN, LENGTH, LAYERS = 64, 8, 256, 32, 3
# what of each weight a rank has; the first dimension of all is the layer
SPECS = {
    "qkv": P(None, None, None, "model", None),
    "out": P(None, "model", None, None),
    "up": P(None, None, "model"),
    "down": P(None, "model", None),
}


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def block(x, w):
    """One layer on one rank: its heads, its hidden units."""
    q, k, v = jnp.einsum("btd,sdhk->sbhtk", norm(x), w["qkv"])
    scores = jnp.einsum("bhtk,bhsk->bhts", q, k) * q.shape[-1] ** -0.5
    causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    heads = jnp.einsum("bhts,bhsk->bthk", jax.nn.softmax(jnp.where(causal, scores, -1e9)), v)
    x = x + jax.lax.psum(jnp.einsum("bthk,hkd->btd", heads, w["out"]), "model")
    hidden = jax.nn.gelu(norm(x) @ w["up"])
    return x + jax.lax.psum(hidden @ w["down"], "model"), None


def loss(weights, x):
    """The error in guessing each position from those before it; the layers run in a loop."""
    y, _ = jax.lax.scan(block, x, weights)
    return jax.lax.pmean(jnp.mean((y[:, :-1] - x[:, 1:]) ** 2), "data")


def make_step(mesh):
    loss_of_all = jax.shard_map(loss, mesh=mesh, in_specs=(SPECS, P("data")), out_specs=P())

    @jax.jit
    def step(weights, x):
        value, grads = jax.value_and_grad(loss_of_all)(weights, x)
        return value, jax.tree.map(lambda w, g: w - 0.05 * g, weights, grads)

    return step


def setup(per_rank=2):
    """The step, and weights and a batch where they belong."""
    ranks = len(jax.devices())
    data = 2 if ranks % 2 == 0 else 1
    mesh = Mesh(np.array(jax.devices()).reshape(data, -1), ("data", "model"))
    rng = np.random.default_rng(0)
    shapes = {
        "qkv": (LAYERS, 3, WIDTH, HEADS, WIDTH // HEADS),
        "out": (LAYERS, HEADS, WIDTH // HEADS, WIDTH),
        "up": (LAYERS, WIDTH, HIDDEN),
        "down": (LAYERS, HIDDEN, WIDTH),
    }
    weights = {
        name: jax.device_put(rng.normal(0, 0.05, shape).astype(np.float32), NamedSharding(mesh, SPECS[name]))
        for name, shape in shapes.items()
    }
    walk = np.cumsum(rng.normal(0, 0.3, (per_rank * data, LENGTH, WIDTH)), axis=1).astype(np.float32)
    return make_step(mesh), weights, jax.device_put(walk, NamedSharding(mesh, P("data")))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps
    step, weights, x = setup()
    for n in range(steps):
        value, weights = step(weights, x)
        if n % 5 == 0 or n == steps - 1:
            print(f"step {n:3}: loss {value:.8f}")


if __name__ == "__main__":
    main()
