"""The module configuration: what the header line of HLO text says and the message does not hold.

Text keeps it in its first line, an ``HloModuleProtoWithConfig`` in a message beside the module. A bare ``.pb`` has no
place for it, so it goes into the module's frontend attributes as ``crossrank.<field>``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

PREFIX = "crossrank."

# what XLA prints from the message itself
_IN_MESSAGE = {
    "is_scheduled",
    "entry_computation_layout",
    "input_output_alias",
    "buffer_donor",
    "frontend_attributes",
}


@dataclass(frozen=True)
class ModuleConfig:
    """The configuration of a module.

    Attributes:
        fields: attribute → text as the header writes it, in order, without those that the message holds.
        header: the header line as it was read, or the empty string.
    """

    fields: dict[str, str] = field(default_factory=dict)
    header: str = ""

    @property
    def replica_count(self) -> int:
        """Number of replicas, 1 where the header is silent."""
        return _whole(self.fields.get("replica_count", "1"))

    @property
    def num_partitions(self) -> int:
        """Number of partitions, 1 where the header is silent."""
        return _whole(self.fields.get("num_partitions", "1"))

    @property
    def says_ranks(self) -> bool:
        """Whether the file itself tells the number of ranks."""
        return "replica_count" in self.fields or "num_partitions" in self.fields

    def with_fields(self, **values: object) -> ModuleConfig:
        """The same with some fields set (the header is made anew)."""
        return replace(self, fields={**self.fields, **{k: str(v) for k, v in values.items()}}, header="")

    def header_line(self, printed: str) -> str:
        """The header for a module that XLA prints with ``printed`` as its first line."""
        if self.header:
            return self.header
        return printed + "".join(f", {k}={v}" for k, v in self.fields.items())

    @staticmethod
    def from_header(line: str) -> ModuleConfig:
        """Read the line ``HloModule NAME, key=value, …``."""
        fields = {}
        for part in split_top_level(line)[1:]:
            key, eq, value = part.partition("=")
            if eq and key.strip() not in _IN_MESSAGE:
                fields[key.strip()] = value.strip()
        return ModuleConfig(fields, line)


def _whole(text: str) -> int:
    """A count; 0, which no module can have, where it is no number."""
    return int(text) if text.lstrip("-").isdecimal() else 0


def split_top_level(text: str) -> list[str]:
    """Cut at the commas that stand outside of brackets and quotes."""
    parts, start, depth = [], 0, 0
    for token in re.finditer(r'"(?:\\.|[^"\\])*"|[][(){}<>,]', re.sub(r"->|<=", "  ", text)):
        c = token[0]
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start : token.start()].strip())
            start = token.end()
    parts.append(text[start:].strip())
    return parts
