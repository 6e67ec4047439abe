"""The command line: one file per command, and no logic."""

import os

XLA_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
CHOSEN_LOG_LEVEL = os.environ.get(XLA_LOG_LEVEL)
"""What the user asked for; the commands themselves silence XLA."""
