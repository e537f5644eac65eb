"""Element types, by torch's names; NumPy has the same names for those it knows."""

from __future__ import annotations

ITEM_BYTES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
"""Of one element."""

TORCH_DTYPES = frozenset(ITEM_BYTES)
"""What a kernel that takes torch tensors can be handed."""

NUMPY_DTYPES = TORCH_DTYPES - {"bfloat16", "float8_e4m3fn", "float8_e5m2"}
"""What a kernel that takes NumPy arrays can be handed."""
