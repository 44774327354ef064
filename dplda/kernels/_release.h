/* Tables of halves from noisy counts, 16 cells at a time; see _release.pyx. */
#ifndef DPLDA_SET
#ifndef DPLDA_RELEASE_H
#define DPLDA_RELEASE_H
#define DPLDA_KERNEL "_release.h"
#include <stddef.h>
#include <stdint.h>

enum { DPLDA_INT32, DPLDA_INT64, DPLDA_FLOAT64 };

/* The weight of a cell that holds the number n is min(max(a n + b, 0), clip) + 1. */
typedef struct {
    float a, b, clip;
} dplda_weight;
#include "_each_set.h"

#define dplda_add_weights(set, ...) DPLDA_CALL(add_weights, set)(__VA_ARGS__)
#define dplda_write_halves(set, ...) DPLDA_CALL(write_halves, set)(__VA_ARGS__)
#endif
#else

/* Up to 16 counts from j on, then zeros. */
DPLDA_INLINE vec NAME(load_counts)(const void *counts, int kind, ptrdiff_t first, ptrdiff_t n_left) {
    if (kind != DPLDA_INT32) {
        float x[16] = {0};
        for (ptrdiff_t i = 0; i < 16 && i < n_left; i++) {
            x[i] = kind == DPLDA_INT64 ? (float)((const int64_t *)counts)[first + i]
                                       : (float)((const double *)counts)[first + i];
        }
        return v_load(x);
    }
    if (n_left < 16) {
        int32_t x[16] = {0};
        memcpy(x, (const int32_t *)counts + first, (size_t)n_left * sizeof *x);
        return v_float(vi_load(x));
    }
    return v_float(vi_load((const int32_t *)counts + first));
}

DPLDA_INLINE vec NAME(weights)(vec counts, dplda_weight weight) {
    const vec value = v_add(v_mul(counts, v_all(weight.a)), v_all(weight.b));
    return v_add(v_min(v_max(value, v_all(0)), v_all(weight.clip)), v_all(1));
}

/* Add the rows' weights to `sums`, and raise `largest` to the largest; both have whole vectors. */
static void NAME(add_weights)(const void *counts, int kind, ptrdiff_t n_rows, ptrdiff_t n_columns,
                              dplda_weight weight, float *sums, float *largest) {
    for (ptrdiff_t row = 0; row < n_rows; row++) {
        for (ptrdiff_t k = 0; k < n_columns; k += 16) {
            const vec x = NAME(weights)(
                NAME(load_counts)(counts, kind, row * n_columns + k, n_columns - k), weight);
            v_store(sums + k, v_add(v_load(sums + k), x));
            v_store(largest + k, v_max(v_load(largest + k), x));
        }
    }
}

/* The nearest halves (ties to even) of floats from 2**-14 to 65504. */
DPLDA_INLINE void NAME(store_halves)(uint16_t *half, ptrdiff_t n, vec x) {
    const veci bits = vi_sub(v_as_int(x), vi_all(112 << 23)); /* the bias of the exponent */
    const veci odd = vi_and(vi_shift_right(bits, 13), vi_all(1));
    const veci rounded = vi_shift_right(vi_add(vi_add(bits, vi_all(0xfff)), odd), 13);
    int32_t wide[16];
    uint16_t result[16];
    vi_store(wide, rounded);
    for (int j = 0; j < 16; j++) {
        result[j] = (uint16_t)wide[j];
    }
    memcpy(half, result, (n < 16 ? (size_t)n : 16) * sizeof *half);
}

/* The rows' weights times the scale of their column, within [low, high], as halves. */
static void NAME(write_halves)(const void *counts, int kind, ptrdiff_t n_rows, ptrdiff_t n_columns,
                               dplda_weight weight, const float *scale, const float *low,
                               const float *high, uint16_t *half, ptrdiff_t padded) {
    for (ptrdiff_t row = 0; row < n_rows; row++) {
        for (ptrdiff_t k = 0; k < n_columns; k += 16) {
            const vec x = NAME(weights)(
                NAME(load_counts)(counts, kind, row * n_columns + k, n_columns - k), weight);
            const vec scaled = v_mul(x, v_load(scale + k));
            const vec bounded = v_min(v_max(scaled, v_load(low + k)), v_load(high + k));
            NAME(store_halves)(half + row * padded + k, n_columns - k, bounded);
        }
    }
}
#endif
