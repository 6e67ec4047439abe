"""What stands for a collective in a kernel: the recipe of each, the barriers among ranks, and what emits them."""
