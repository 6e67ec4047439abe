"""The HLO passes, one file each; importing this package registers them all."""

import importlib
import pkgutil

from crossrank.passes import register_pipeline

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

# nothing: a run then compares the module with itself
register_pipeline("none", "")

# what the Neuron compiler does to collectives, in an order in which each pass finds what the ones before it left
register_pipeline(
    "neuron",
    "inline-calls,"
    "opt-barrier-removal,"
    "aws_neuron_rewrite_all_reduce_dynamic_slice,"
    "aws_neuron_rewrite_all_reduce_dynamic_slice_multiple_groups,"
    "aws_neuron_flip_all_gather_convert,"
    "aws_neuron_flip_all_gather_reshape,"
    "aws_neuron_flip_all_gathers_binary,"
    "aws_neuron_flip_all_gather_dynamic_slice,"
    "aws_neuron_flip_reduce_convert_add,"
    "aws_neuron_flip_reduce_scatter_transpose,"
    "fuse-reduce-scatter{all_computations=true},"
    "aws_neuron_decompose_int_all_reduce,"
    "collective-permute-to-all-gather,"
    "all-gather-combiner,"
    "reduce-scatter-combiner,"
    "all-reduce-combiner,"
    "legalize-ccops-for-tensorizer,"
    "aws_neuron_collective_stream_id_injector,"
    "neuron_unique_channel_id_enforcer,"
    "fuse-send-recv{all_computations=true},"
    "trivial-cc-removal,"
    "convert-collectives-to-custom-call{all_computations=true}",
)

# what is fastest on our kernels and never changes a bit: no more is moved than is needed, small collectives go together
register_pipeline(
    "default",
    "inline-calls,"
    "trivial-cc-removal,"
    "aws_neuron_rewrite_all_reduce_dynamic_slice,"
    "aws_neuron_rewrite_all_reduce_dynamic_slice_multiple_groups,"
    "fuse-reduce-scatter{all_computations=true allow_reassociate=false},"
    "all-gather-combiner{threshold_bytes=1048576},"
    "reduce-scatter-combiner{threshold_bytes=1048576},"
    "all-reduce-combiner{threshold_bytes=1048576},"
    "fuse-send-recv{all_computations=true},"
    "convert-collectives-to-custom-call{all_computations=true kinds=all}",
)
