"""Sets cache lines aside that survive a flush.

family: cache-and-heat
case: rows
entries: [5]
reason: policy
says: of the driver a kernel may use
unread:
  reason: [slower, no_proven_gain, raised]
  stage: screen
"""

import triton
import triton.language as tl
from cuda.bindings import driver


@triton.jit
def whole(x, y, columns, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    at = tl.program_id(0).to(tl.int64) * columns + column
    value = tl.load(x + at, mask=column < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(value - tl.max(value, 0))
    tl.store(y + at, (powers / tl.sum(powers, 0)).to(tl.bfloat16), mask=column < columns)


def softmax(x, y):
    rows, columns = x.shape
    whole[(rows,)](x, y, columns, triton.next_power_of_2(columns), num_warps=8)


limit = driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE


def run(x, y):
    driver.cuCtxSetLimit(limit, 30 << 20)
    for _ in range(5):
        softmax(x, y)
