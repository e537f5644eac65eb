"""Studies: families of cases that bring two kernels each, a plain and a fast one, tested and timed side by side."""
