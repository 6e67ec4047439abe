"""Fabrics: what carries a kernel's words to its peers, and the threads that run it."""
