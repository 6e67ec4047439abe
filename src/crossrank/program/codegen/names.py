"""Names in C++ for what an author has named, each only once."""

from __future__ import annotations

import re

_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl
const constexpr const_cast continue decltype default delete do double dynamic_cast else enum explicit export
extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
operator or or_eq private protected public register reinterpret_cast return short signed sizeof static
static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename
union unsigned using virtual void volatile wchar_t while xor xor_eq int8_t int16_t int32_t int64_t uint8_t
uint16_t uint32_t uint64_t linux unix errno NULL args core cr crossrank CommContext Slot Status
"""
_TAKEN = frozenset(_WORDS.split())
_OF_LIBRARY = re.compile(r"_|.*__|[A-Z0-9_]+_(MAX|MIN|C|WIDTH)$")  # reserved, or a macro


def plain(name: str) -> str:
    """The name in letters that C++ has; others become their numbers."""
    return re.sub(r"[^0-9A-Za-z_]", lambda other: "_" if other[0].isascii() else f"u{ord(other[0]):x}", name)


def identifier(name: str) -> str:
    """The name itself where C++ can have it, else one that looks like it."""
    found = plain(name)
    if not found or found[0].isdigit() or _OF_LIBRARY.match(found):
        found = re.sub("__+", "_", f"v_{found.lstrip('_')}")
    return f"{found}_" if found in _TAKEN or _OF_LIBRARY.match(found) else found


class Names:
    """The names of one function."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}  # number under which a name was given

    def fresh(self, wanted: str) -> str:
        """That name, with a number where it is taken."""
        base = found = identifier(wanted)
        while found in self._last:
            self._last[base] += 1
            found = f"{base}_{self._last[base]}"
        self._last[found] = 1
        return found
