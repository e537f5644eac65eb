"""The GEMM lab: shapes, and what every kernel that could win makes of them."""
