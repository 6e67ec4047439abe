"""What would abort the process inside XLA is refused before, and what XLA reads is let through.

Each bad text is read in a process of its own, so that a missing guard fails its test and not all of them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crossrank.hlo.guard import check_message, check_text
from crossrank.hlo.schema import ModuleProto
from crossrank.hlo.xla import text_to_proto

from ..support import corpus_text, each_corpus_module, hlo, needs_corpus, python, reducer

READ = """
import json, sys
from crossrank.errors import InputError
from crossrank.hlo.io import parse_module
said = []
for text in json.load(sys.stdin):
    try:
        parse_module(text.encode(), "bad.hlo")
        said.append("")
    except InputError as error:
        said.append(str(error))
json.dump(said, sys.stdout)
"""


def all_reduce(groups: str) -> str:
    entry = (
        "  p = f32[8,4] parameter(0)\n"
        f"  ROOT r = f32[8,4] all-reduce(p), channel_id=1, replica_groups={groups}, "
        "use_global_device_ids=true, to_apply=add_f32"
    )
    return hlo(entry, reducer())


def entry(*lines: str) -> str:
    return hlo("  p = f32[8,4] parameter(0)\n  " + "\n  ".join(lines))


BAD = {
    "two axes of one name": (
        all_reduce("mesh['a'=2,'a'=4] {'a'}"),
        "line 11: .*two axes of the mesh have the same name",
    ),
    "a part that does not divide": (all_reduce("mesh['a'=8] {'a':(3)2}"), "line 11: .*axis 'a' of 8 has no part"),
    "an unknown axis": (all_reduce("mesh['a'=8] {'b'}"), "line 11: .*the mesh has no axis 'b'"),
    "devices twice": (all_reduce("mesh['a'=4], device_ids=(0,1,1,2) {'a'}"), "line 11: .*no permutation of 0..3"),
    "an unfinished mesh": (all_reduce("mesh['a'=8 {'a'"), "line 11: cannot read the replica groups"),
    "a huge mesh": (all_reduce("mesh['a'=2,'b'=99999999999] {'a'}"), None),
    "a sharding without its axis": (
        entry("ROOT r = f32[8,4] copy(p), sharding={mesh['a'=2], [{'b'},{}]}"),
        "line 5: the mesh of the sharding has no axis 'b'",
    ),
    "an element beyond a tuple": (
        entry("t = (f32[8,4], /*index=1*/f32[8,4]) tuple(p, p)", "ROOT r = f32[8,4] get-tuple-element(t), index=2"),
        "line 6: %r takes element 2 of a tuple of 2",
    ),
    "brackets without end": (entry("ROOT r = " + "(" * 20000 + "f32[]"), "line 5: brackets nested too deeply"),
}


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    done = python(READ, stdin=json.dumps([text for text, _ in BAD.values()]))
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(BAD, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", [name for name, (_, complaint) in BAD.items() if complaint])
def test_what_would_abort_is_refused(answers: dict[str, str], name: str) -> None:
    said = answers[name]
    assert said.startswith("bad.hlo: ")
    assert len(said.splitlines()) <= 2
    with pytest.raises(ValueError, match=str(BAD[name][1])):
        check_text(BAD[name][0])


SPOIL = """
import json, sys
from crossrank.hlo import io, xla
from crossrank.hlo.schema import ModuleProto
from crossrank.errors import InputError
text, code = json.load(sys.stdin)
proto = ModuleProto.FromString(xla.text_to_proto(text))
by_name = {i.name: i for c in proto.computations for i in c.instructions}
exec(code)
try:
    io.parse_module(proto.SerializeToString(), "bad.pb")
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("text", "spoil", "complaint"),
    [
        (
            all_reduce("mesh['a'=2,'b'=4] {'b'}"),
            "by_name['r'].mesh_axes_replica_group_list.axes[0].mesh_axis_index = 5",
            "%r: cannot read its replica groups: there is no axis 5",
        ),
        (
            all_reduce("[4,2]<=[8]"),
            "by_name['r'].iota_collective_device_list.num_replica_groups = 3",
            "%r: cannot read its replica groups: 3 groups of 2 cannot be cut from [8]",
        ),
        (
            entry("t = (f32[8,4]) tuple(p)", "ROOT r = f32[8,4] get-tuple-element(t), index=0"),
            "by_name['r'].tuple_index = 7",
            "%r takes element 7 of a tuple of 1",
        ),
        (entry("ROOT r = f32[8,4] copy(p)"), "by_name['r'].operand_ids[0] = 12345", "bad.pb: "),
    ],
)
def test_a_message_that_would_abort_is_refused(text: str, spoil: str, complaint: str) -> None:
    done = python(SPOIL, stdin=json.dumps([text, spoil]))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("bad.pb: ")
    assert complaint in done.stdout


ENDS_XLA = {
    "a gap in the parameters": entry("q = f32[8] parameter(2)", "ROOT r = f32[8,4] copy(p)"),
    "a reshape of another size": entry("ROOT r = f32[8,5] reshape(p)"),
    "a dot of one": entry("ROOT r = f32[8,8] dot(p), lhs_contracting_dims={1}, rhs_contracting_dims={1}"),
}


@pytest.mark.parametrize("name", ENDS_XLA)
def test_where_xla_ends_the_process_it_ends_with_a_plain_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.hlo"
    path.write_text(ENDS_XLA[name])
    done = python("import sys; from crossrank.cli.main import main; sys.exit(main(['opt', sys.argv[1]]))", str(path))
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith(f"crossrank: {path}: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        all_reduce("mesh['a'=2,'b'=4], device_ids=([2,4]T(1,0)) {'b':(1)2,'a'}"),
        entry("r = f32[4,8] reshape(p)", "ROOT q = f32[32]{0} reshape(f32[4,8]{1,0} %r)"),
        entry("t = ((f32[8,4], s32[]), f32[8,4]) parameter(1)", "ROOT r = f32[8,4] get-tuple-element(t), index=1"),
        "HloModule one_line\nENTRY e { a = f32[] parameter(0) b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n",
        entry('ROOT r = f32[8,4] copy(p), frontend_attributes={note="} parameter(9)"}'),
        entry("// parameter(7) is not here {", "ROOT r = f32[8,4] copy(p)"),
        entry(
            "c = f32[2,2] constant({ {1,2},", "  {3,4}", "  })", "q = f32[] parameter(1)", "ROOT r = f32[8,4] copy(p)"
        ),
    ],
)
def test_what_xla_reads_is_let_through(text: str) -> None:
    check_text(text)
    check_message(ModuleProto.FromString(text_to_proto(text)))


@needs_corpus
@each_corpus_module
def test_no_corpus_module_is_refused(name: str) -> None:
    check_text(corpus_text(name).decode())
