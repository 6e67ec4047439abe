"""Every module of the corpus: what is converted, that values stay, and that goldens come out.

The corpus has modules of JAX and of PyTorch/XLA, as their partitioners made them. The table says how many
all-reduces, all-gathers and reduce-scatters the conversion must find in each. Values are compared after the pipeline
`default`, for every module, and after each single pass, for the three smallest modules that it changes;
`make corpus` does the rest.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import islice

import pytest

from crossrank.collective.kinds import Kind
from crossrank.hlo.execute.run import RunOptions, run_variants
from crossrank.hlo.inventory import count_native
from crossrank.hlo.module import Module
from crossrank.hlo.targets import parse_target
from crossrank.passes import all_passes, parse_passes, pipeline, run_passes
from tests.support import CORPUS, LARGE, corpus_facts, corpus_file, each_corpus_module, needs_corpus

KINDS = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER)

CONVERSION = "inline-calls,convert-collectives-to-custom-call{all_computations=true}"

CONVERTED = {
    "big_fsdp_tp_24l": (782, 270, 0),
    "cg_while": (3, 1, 0),
    "collective_broadcast": (1, 0, 0),
    "collective_matmul": (0, 0, 0),
    "collective_matmul_bidir": (0, 0, 1),
    "cpu_scheduled_tp": (6, 0, 0),
    "dlrm_embeddings": (4, 0, 0),
    "dp_mlp_adam": (15, 0, 0),
    "dtype_reductions": (14, 2, 2),
    "fft2d_alltoall": (0, 0, 1),
    "fsdp_gspmd_transformer": (30, 34, 0),
    "fsdp_scan_mlp": (1, 6, 3),
    "gossip_topk": (0, 6, 0),
    "gpu_before_schedule_tp": (4, 0, 0),
    "gpu_dp_combined_allreduce": (0, 0, 0),
    "gpu_fsdp_reduce_scatter": (1, 12, 12),
    "gpu_fsdp_scheduled": (0, 0, 0),
    "gspmd_reductions_x64": (15, 4, 0),
    "halo_conv_spatial": (4, 0, 0),
    "handwritten_forms": (4, 0, 1),
    "jax062_fsdp_tp": (25, 28, 0),
    "jax062_pmap_dp": (5, 1, 0),
    "jax062_seq_gspmd": (1, 7, 0),
    "mesh3d_reductions": (4, 1, 1),
    "moe_ragged_alltoall": (0, 1, 0),
    "moe_switch_alltoall": (4, 0, 0),
    "pipeline_gpipe_train": (1, 0, 0),
    "psum_many_small": (60, 0, 0),
    "ranks16_fsdp_tp": (11, 16, 0),
    "reshard_zoo": (0, 4, 0),
    "ring_attention_grad": (1, 0, 0),
    "rs_concat_barrier": (0, 0, 5),
    "rs_concat_bf16_stacked": (2, 0, 5),
    "rs_concat_grads": (0, 0, 6),
    "rs_concat_mean_zero1": (1, 1, 12),
    "send_recv_pipeline": (0, 0, 0),
    "sp_megatron_train": (13, 8, 8),
    "synthetic_60k": (3501, 0, 0),
    "torch_rep_bucketized_bf16": (4, 0, 0),
    "torch_rep_coalesced_rs": (0, 1, 3),
    "torch_rep_dp_mlp_adam": (2, 0, 0),
    "torch_rep_gather_variants": (0, 7, 4),
    "torch_rep_moe_all_to_all": (1, 0, 0),
    "torch_spmd_block_train": (23, 14, 0),
    "torch_spmd_scan": (5, 4, 0),
    "torch_spmd_tp_mlp_bf16": (6, 3, 0),
    "tp_decode_kvcache": (3, 2, 0),
    "tp_llama_fwd": (11, 0, 0),
    "tp_shardmap_mqa": (6, 0, 0),
    "tpu_fsdp_scheduled": (1, 3, 0),
    "tpu_spmd_fsdp_tp": (11, 10, 0),
    "unet_spatial_data": (18, 0, 0),
    "variadic_allreduce": (1, 0, 0),
}

# what the conversion rightly leaves: collectives in fusion bodies and asynchronous wrappers of compiled modules
LEFT = {
    "gpu_fsdp_scheduled": {"reduce-scatter": 2},
    "handwritten_forms": {"reduce-scatter": 1},
    "tpu_fsdp_scheduled": {"all-reduce": 1, "all-gather": 11},
}

# XLA:CPU lacks their collectives, so that the corpus does not count them as runnable; the oracle has them
RUN_ON_THE_ORACLE = ("collective_broadcast", "moe_ragged_alltoall", "send_recv_pipeline", "torch_rep_coalesced_rs")

# change nothing that can be compared
NOT_ALONE = ("inline-calls", "verify-collective-targets", "collective-stream-id-checker")
SMALLEST = 3


@each_corpus_module
def test_what_is_converted(name: str) -> None:
    file = corpus_file(name)
    stem = name.partition(".")[0]
    results = run_passes(file.module, parse_passes(CONVERSION))
    calls = (i for i in file.module.instructions() if i.opcode == "custom-call")
    found = Counter(t.kind for i in calls if (t := parse_target(i.proto.custom_call_target)))
    assert tuple(found[k] for k in KINDS) == CONVERTED[stem]
    left = {k: n for k, n in count_native(file.module).items() if k in set(map(str, KINDS))}
    assert left == LEFT.get(stem, {})
    declined = [r for result in results for r in result.remarks if r.outcome == "declined"]
    assert len(declined) == sum(left.values())


@each_corpus_module
def test_the_default_pipeline_leaves_no_collective_native(name: str) -> None:
    file = corpus_file(name)
    run_passes(file.module, pipeline("default"))
    left = {k: n for k, n in count_native(file.module).items() if not k.endswith("-start")}
    assert left == LEFT.get(name.partition(".")[0], {})


def _runnable() -> list[str]:
    names = sorted(p.name for p in CORPUS.glob("*.hlo*")) if CORPUS.is_dir() else []
    return [n for n in names if corpus_facts(n).get("runnable_small") or n.partition(".")[0] in RUN_ON_THE_ORACLE]


@cache
def _single_passes() -> dict[str, list[str]]:
    """Module → the passes for which it is one of the smallest that they change."""
    names = sorted((n for n in _runnable() if n not in LARGE), key=lambda n: corpus_facts(n)["n_instructions"])
    chosen: dict[str, list[str]] = {n: [] for n in _runnable()}
    for pass_name in (p for p in all_passes(Module.TITLE) if p not in NOT_ALONE):
        passes = f"inline-calls,{pass_name}"
        changed = (n for n in names if run_passes(corpus_file(n).module, parse_passes(passes))[-1].changed)
        for name in islice(changed, SMALLEST):
            chosen[name].append(passes)
    return chosen


@needs_corpus
@pytest.mark.parametrize("name", _runnable() or [""])
def test_values_stay_and_goldens_come_out(name: str) -> None:
    golden = CORPUS / f"{name.partition('.')[0]}.npz"
    tolerance = corpus_facts(name).get("tolerance")
    options = RunOptions(inputs=str(golden) if golden.exists() else None, iters=0)
    singles = _single_passes()[name]
    variants = [*map(parse_passes, singles), pipeline("default")]
    for passes, report in zip([*singles, "default"], run_variants(corpus_file(name), variants, options), strict=True):
        result = report.result
        assert "error" not in result, (passes, result)
        reassociates = any(p.changed and all_passes()[p.name].reassociates for p in report.passes)
        assert result["exact"] or (reassociates and result["equal"]), (passes, result["first_difference"])
        assert not result["raised"], passes
        assert not any(o["all_nan"] for o in result["outputs"]) or not golden.exists()
        if golden.exists():
            # the original itself misses a golden where this CPU multiplies matrices in another order than its own did
            assert result["golden"]["outputs"] == len(result["outputs"])
            within = tolerance is not None and result["golden"]["max_rel_err"] <= tolerance
            assert report.equal or within, (passes, result["golden"])
