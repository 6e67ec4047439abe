"""What the passes on kernels share: who meets whom, fences, and how programs of several cores are edited together."""
