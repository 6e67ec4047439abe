"""A program at work: its HOST and CHIP bodies are executed as they stand, its kernels are compiled and become tasks."""
