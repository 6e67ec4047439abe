"""`python -m crossrank`: the same as the command `crossrank`."""

import sys

from crossrank.cli.main import main

sys.exit(main())
