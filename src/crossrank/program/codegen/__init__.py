"""Kernels of a program as C++ on the kernel ABI, compiled, and the folder in which people find what was made."""
