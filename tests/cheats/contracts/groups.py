"""The start of the groups case: right, row by row."""


def run(x, lengths, order, sums, gathered):
    sums[:] = 0
    row = 0
    for group in range(len(lengths)):
        for _ in range(int(lengths[group])):
            sums[group] += x[row]
            row += 1
    for row in range(len(order)):
        gathered[row] = x[order[row]]
