"""Running HLO modules on N ranks of this machine: inputs, the child process, comparison."""
