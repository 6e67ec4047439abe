"""The passes on programs, one file each; importing this package registers them all."""

import importlib
import pkgutil

from crossrank.passes import register_pipeline

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

# what is said collectively becomes puts, signals and waits, tasks and dispatches; calls and windows say what a run has
# to know of them
_PASSES = (
    "lower-composite-ops",
    "fuse-create-assemble-to-slice",
    "lower-l2-tensor-collectives",
    "legalize-spmd-launches",
    "derive-call-directions",
    "synthesize-allreduce-signals",
    "materialize-comm-domain-scopes",
    "lower-host-tensor-collectives",
    "materialize-dist-tensor-ctx",
    "insert-comm-fence",
)
_LIMITED = {name for name in _PASSES if name.startswith(("lower-", "synthesize-"))}

register_pipeline("program", ",".join(_PASSES))
# the same, with the limits of what the rails come from
register_pipeline(
    "program-as-source", ",".join(f"{name}{{as_source=true}}" if name in _LIMITED else name for name in _PASSES)
)
