#include <math.h>
#include <stdint.h>

enum { LANES = 16 };

/* The sum of products of two vectors. Sums side by side keep the vector unit busy. */
static float dot(const float *a, const float *b, int64_t count)
{
    float sums[LANES] = {0};
    int64_t at = 0;
    for (; at + LANES <= count; at += LANES)
        for (int lane = 0; lane < LANES; lane++)
            sums[lane] += a[at + lane] * b[at + lane];
    float sum = 0;
    for (int lane = 0; lane < LANES; lane++)
        sum += sums[lane];
    for (; at < count; at++)
        sum += a[at] * b[at];
    return sum;
}

/* x [k], norm [k], weight [n, k], y [n]; sizes are k, k, n, k, n. */
void norm_gemv(const float *restrict x, const float *restrict norm, const float *restrict weight,
               float *restrict y, const int64_t *sizes, double eps)
{
    int64_t k = sizes[0], n = sizes[2];
    float scale = 1 / sqrtf(dot(x, x, k) / k + eps);
    float normed[k];
    for (int64_t at = 0; at < k; at++)
        normed[at] = x[at] * scale * norm[at];
    for (int64_t row = 0; row < n; row++)
        y[row] = dot(normed, weight + row * k, k);
}
