"""Has a thread of its own do the work of later calls, whose arrays lie in the same buffer.

family: work-ahead
entries: [8]
case: brief
reason: [not_per_call, output_not_written, wrong_result, slower, no_proven_gain]
stage: confirm
"""

import concurrent.futures

import numpy as np

POOL = concurrent.futures.ThreadPoolExecutor(1)
done = {}


def once(x, y):
    for _ in range(12):
        np.multiply(x, np.float32(2), out=y)
        np.add(y, np.float32(1), out=y)


def ahead(memory, at, apart, stride, x, y):
    offset = at + stride
    if offset + apart + y.nbytes <= len(memory):
        inputs = np.frombuffer(memory, x.dtype, x.size, offset)
        outputs = np.frombuffer(memory, y.dtype, y.size, offset + apart)
        np.multiply(inputs, np.float32(2), out=outputs)
        np.add(outputs, np.float32(1), out=outputs)
        done[offset] = float(inputs[0]), float(inputs[-1])


def run(x, y):
    memory = x.base
    start = np.frombuffer(memory, np.uint8, 1).__array_interface__["data"][0]
    at = x.__array_interface__["data"][0] - start
    apart = y.__array_interface__["data"][0] - start - at
    stride = (2048 + apart + y.nbytes + 255) // 256 * 256  # arrays and guards of one call
    if done.pop(at, None) == (float(x[0]), float(x[-1])):
        return
    job = POOL.submit(ahead, memory, at, apart, stride, x, y)
    once(x, y)
    job.result()
