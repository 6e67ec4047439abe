"""The instruction level: what kernels written for NKI are made of, and what each instruction does."""
