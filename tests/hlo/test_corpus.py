"""Every corpus module is read, opened, converted, written in both forms, and read again."""

from __future__ import annotations

import pytest

from crossrank.hlo.io import parse_module, to_pb, to_text
from crossrank.passes import parse_passes, run_passes

from ..support import corpus_facts, corpus_file, each_corpus_module, needs_corpus, opcodes

CONVERTED = ("all-reduce", "all-gather", "reduce-scatter")


@needs_corpus
@each_corpus_module
def test_there_and_back(name: str) -> None:
    file = corpus_file(name)
    config = file.module.config
    if file.elided:
        pytest.skip("its constants have no numbers")
    run_passes(file.module, parse_passes("inline-calls,convert-collectives-to-custom-call{all_computations=true}"))
    text, data = to_text(file), to_pb(file)
    assert text.splitlines()[0] == config.header.strip()
    again = parse_module(data, name)
    assert again.module.config.fields == config.fields
    assert to_pb(again) == data
    assert "crossrank." not in to_text(again)
    assert sorted(opcodes(again.module)) == sorted(opcodes(file.module))
    facts = corpus_facts(name)
    if "call" not in facts["opcodes"] and not {"fusion", "async-start"} & set(facts["opcodes"]):
        assert opcodes(again.module).count("custom-call") == facts["opcodes"].get("custom-call", 0) + sum(
            facts["collectives"].get(k, 0) for k in CONVERTED
        )
        assert not set(CONVERTED) & set(opcodes(again.module))
