/* y = A x, rows x columns in float32, row-major. sizes: rows, columns, columns, rows. */
#include <stdint.h>
#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

#define MOST_SUMS 64

static float plain(const float *a, const float *x, int64_t columns)
{
    float sums[MOST_SUMS] = {0}, total = 0;
    int64_t j = 0;
    for (; j + MV_SUMS <= columns; j += MV_SUMS)
        for (int s = 0; s < MV_SUMS; s++)
            sums[s] += a[j + s] * x[j + s];
    for (int s = 0; s < MV_SUMS; s++)
        total += sums[s];
    for (; j < columns; j++)
        total += a[j] * x[j];
    return total;
}

#if defined(__AVX2__) && defined(__FMA__)
static float vectors(const float *a, const float *x, int64_t columns)
{
    __m256 sums[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    int64_t j = 0;
    for (; j + 32 <= columns; j += 32)
        for (int s = 0; s < 4; s++)
            sums[s] = _mm256_fmadd_ps(_mm256_loadu_ps(a + j + 8 * s), _mm256_loadu_ps(x + j + 8 * s), sums[s]);
    float lanes[8], total = 0;
    _mm256_storeu_ps(lanes, _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
    for (int lane = 0; lane < 8; lane++)
        total += lanes[lane];
    for (; j < columns; j++)
        total += a[j] * x[j];
    return total;
}
#else
#define vectors plain
#endif

void run(const float *a, const float *x, float *y, const int64_t *sizes)
{
    const int64_t rows = sizes[0], columns = sizes[1];
    for (int64_t i = 0; i < rows; i++)
        y[i] = (MV_VECTORS ? vectors : plain)(a + i * columns, x, columns);
}
