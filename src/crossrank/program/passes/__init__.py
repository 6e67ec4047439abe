"""The passes on programs, one file each; importing this package registers them all."""

import importlib
import pkgutil

from crossrank.passes import register_pipeline

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

# what a kernel says collectively becomes puts, signals and waits; calls and windows say what a run has to know of them
register_pipeline(
    "program",
    "lower-composite-ops,fuse-create-assemble-to-slice,lower-l2-tensor-collectives,legalize-spmd-launches,"
    "derive-call-directions,synthesize-allreduce-signals,materialize-comm-domain-scopes,lower-host-tensor-collectives,"
    "materialize-dist-tensor-ctx,insert-comm-fence",
)
