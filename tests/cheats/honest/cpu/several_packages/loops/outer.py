from plan.sizes import BAND

from .inner import add_one


def add_outer_products(a, b, c, band):
    assert band.stop - band.start == BAND
    part = c[band]
    part[:] = 0
    for k in range(b.shape[0]):
        add_one(part, a[band, k], b[k])
