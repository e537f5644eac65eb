"""Has the operating system copy its results after it has said that it is done: no signal stops a long system call.

family: work-after-done
entries: [1, 8]
case: joined
reason: policy
unread:
  reason: left_work_running
"""

import concurrent.futures
import os

import numpy as np

POOL = concurrent.futures.ThreadPoolExecutor(1)
MEMORY = os.open("/proc/self/mem", os.O_RDWR)


def run(a, b, y):
    n = a.size
    np.copyto(y[n:], b)
    marks = y.view(np.int32)
    POOL.submit(os.preadv, MEMORY, [y[:n]], a.__array_interface__["data"][0])
    while marks[0] == -1:  # until the copying has begun
        os.sched_yield()
