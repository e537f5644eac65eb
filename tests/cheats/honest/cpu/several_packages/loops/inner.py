import numba


@numba.njit
def add_one(part, column, row):
    for i in range(part.shape[0]):
        for j in range(part.shape[1]):
            part[i, j] += column[i] * row[j]
