"""The passes on kernels, one file each; importing this package registers them all."""

import importlib
import pkgutil

from crossrank.passes import register_pipeline

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

# collectives among the cores of a rank become copies and barriers, and what is shared says when it is complete
register_pipeline("local", "lower-local-collectives,insert-ptcom")
