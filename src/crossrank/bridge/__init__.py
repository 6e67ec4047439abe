"""What joins one door to another, or to the world outside: the hook in JAX."""
