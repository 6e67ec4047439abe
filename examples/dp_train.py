"""Data-parallel training of an MLP: jit, shardings, and nothing else. XLA puts the gradients' all-reduces in.

python examples/dp_train.py
crossrank jax examples/dp_train.py
"""

import argparse
import itertools
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

WIDTHS = (64, 256, 256, 10)


def predict(params, x):
    for w, b in params[:-1]:
        x = jax.nn.gelu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def loss(params, x, labels):
    scores = jax.nn.log_softmax(predict(params, x))
    return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))


@jax.jit
def step(params, x, labels):
    value, grads = jax.value_and_grad(loss)(params, x, labels)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def setup(per_rank=32):
    """Parameters on every rank, a batch of which each rank has its share."""
    mesh = Mesh(np.array(jax.devices()), ("data",))
    everywhere, shared = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    rng = np.random.default_rng(0)
    params = [
        (rng.normal(0, n**-0.5, (n, m)).astype(np.float32), np.zeros(m, np.float32))
        for n, m in itertools.pairwise(WIDTHS)
    ]
    x = rng.normal(size=(per_rank * mesh.size, WIDTHS[0])).astype(np.float32)
    labels = np.argmax(x[:, : WIDTHS[-1]], axis=1).astype(np.int32)
    return jax.device_put(params, everywhere), jax.device_put(x, shared), jax.device_put(labels, shared)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args().steps
    params, x, labels = setup()
    for n in range(steps):
        value, params = step(params, x, labels)
        if n % 10 == 0 or n == steps - 1:
            print(f"step {n:3}: loss {value:.8f}")


if __name__ == "__main__":
    main()
