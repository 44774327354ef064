/* Clipping to integers of bounded L2 norm: the C form of `clip_rows` in dplda/privacy/_mechanisms.py.
   Its definition is `clip` in tests/twins.py.

   A vector is scaled and rounded toward zero. Its length is then checked in integers, so that
   floating-point errors cannot exceed the bound. */
#ifndef DPLDA_CLIP_H
#define DPLDA_CLIP_H
#include <math.h>
#include <stdint.h>

/* Round value * scale toward zero, and return the sum of squares. */
static inline int64_t dplda_round_to_grid(const float *value, int64_t size, float scale,
                                          int32_t *out) {
    int64_t i, total = 0;
    for (i = 0; i < size; i++) out[i] = (int32_t)(value[i] * scale);
    for (i = 0; i < size; i++) total += (int64_t)out[i] * out[i];
    return total;
}

/* Scale `value` by `relative`, clip it, and write it in units of 1 / radius.

   value, size: the contribution; length: its norm, as computed; relative: the scale of the floats
   over the clipping bound; radius: the bound in integers, at most 2**30; out: (size,) integers.
   Returns 1, or 0 if the contribution must be left out. */
static inline int dplda_clip(const float *value, int64_t size, double length, double relative,
                             int64_t radius, int32_t *out) {
    const int64_t limit = radius * radius;
    float scale;
    /* False for NaN, too. No integer can overflow: the scale is at most radius / length, so a cell is
     * at most radius (1 + 2^-20); below 1e-15, squares that underflow would make a length too short. */
    if (!(1e-15 < length && length < INFINITY && 0 <= relative && relative < INFINITY)) return 0;
    scale = (float)(radius * (relative * length < 1 ? relative : 1 / length));
    /* The bound holds by this comparison of integers alone, whatever the floats before were. */
    if (dplda_round_to_grid(value, size, scale, out) <= limit) return 1;
    /* rounding left it too long: a little less */
    scale *= (float)(1 - 1.0 / 65536);
    return dplda_round_to_grid(value, size, scale, out) <= limit;
}
#endif
