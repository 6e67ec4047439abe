"""What can be proved or caught before and during a run."""
