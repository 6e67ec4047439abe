"""What a collective *is*: kinds, element types, groups, pairs, and the NumPy meaning over all ranks.

The ground floor. It imports nothing of ours; a fault is a ``ValueError`` with a message of one line.
"""
