"""The author's source, parsed: statements become ops, and names that loops and branches bind again their values."""
