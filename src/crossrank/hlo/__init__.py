"""HLO modules: read, walk, edit, rewrite, check, write, run."""
