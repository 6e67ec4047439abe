"""The HLO passes, one file each; importing this package registers them all."""

import importlib
import pkgutil

from crossrank.passes import register_pipeline

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

register_pipeline("none", "")
register_pipeline("default", "inline-calls,convert-collectives-to-custom-call{all_computations=true}")
