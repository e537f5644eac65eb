"""Writes the library's bytes back over what stands in its place, through the file of its own memory.

family: border
entries: [34]
case: product
reason: does_not_load
says: Error
"""

from pathlib import Path

for line in Path("/proc/self/maps").read_text().splitlines():
    parts = line.split()
    if len(parts) > 5 and "openblas" in parts[5] and "r" in parts[1]:
        data = Path(parts[5]).read_bytes()
        break
low = max(0, data.find(b"\x7fELF"))
spots = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if " r-xs " in line]
with open("/proc/self/mem", "r+b", buffering=0) as memory:
    for spot in spots:
        memory.seek(int(spot.partition("-")[0], 16))
        memory.write(data[low : low + 4096])


def run(a, b, c):
    c[:] = 0
