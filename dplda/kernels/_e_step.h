/* The variational E-step of one document, in float and double, for each instruction set. */
#ifndef DPLDA_SET
#ifndef DPLDA_E_STEP_H
#define DPLDA_E_STEP_H
#include <float.h>
#include <stdint.h>
#include "_digamma.h"

enum { DPLDA_WORDS = 64 }; /* words of a tile */

/* Added to a word's norm, as in scikit-learn: words that no topic explains count less. Both types
 * use the value of double: with its own, float would lose the rare words of a large vocabulary. */
#define EPSILON ((REAL)DBL_EPSILON)
#define DPLDA_KERNEL "_e_step.h"
#include "_each_set.h"
#endif
#else

/* to[i][j] = from[j][i] of 4 by 4 elements; a row of `to` has DPLDA_WORDS. */
DPLDA_INLINE void NAME(transpose_float)(const float *const *from, ptrdiff_t topic, float *to) {
#ifdef DPLDA_X86
    __m128 a = _mm_loadu_ps(from[0] + topic), b = _mm_loadu_ps(from[1] + topic);
    __m128 c = _mm_loadu_ps(from[2] + topic), d = _mm_loadu_ps(from[3] + topic);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + DPLDA_WORDS, b);
    _mm_storeu_ps(to + 2 * DPLDA_WORDS, c);
    _mm_storeu_ps(to + 3 * DPLDA_WORDS, d);
#else
    for (int i = 0; i < 16; i++) {
        to[i / 4 * DPLDA_WORDS + i % 4] = from[i % 4][topic + i / 4];
    }
#endif
}
DPLDA_INLINE void NAME(transpose_double)(const double *const *from, ptrdiff_t k, double *to) {
#ifdef DPLDA_X86
    for (int i = 0; i < 8; i++) { /* two words, two topics */
        const int j = i % 2 * 2, row = i / 2;
        const __m128d a = _mm_load_sd(from[j] + k + row);
        _mm_storeu_pd(to + row * DPLDA_WORDS + j, _mm_loadh_pd(a, from[j + 1] + k + row));
    }
#else
    for (int i = 0; i < 16; i++) {
        to[i / 4 * DPLDA_WORDS + i % 4] = from[i % 4][k + i / 4];
    }
#endif
}

#define REAL float
#define VEC vec
#define OP(name) v_##name
#include "_digamma.h"
#include "_e_step_loops.h"
#undef REAL
#undef VEC
#undef OP
#define REAL double
#define VEC NAME(vd)
#define OP(name) NAME(vd_##name)
#include "_digamma.h"
#include "_e_step_loops.h"
#undef REAL
#undef VEC
#undef OP

/* digamma(total) - log(base) and 1 / base of each topic, for `expectations`. */
static void NAME(digammas)(const double *total, ptrdiff_t n, double *digamma, double *scale) {
    for (ptrdiff_t k = 0; k < n; k++) {
        double base;
        digamma[k] = NAME(digamma_double)(total[k], &base);
        scale[k] = 1 / base;
    }
}

/* exp(digamma(cell) - digamma(total)) of the cells of a row, 0 where that is below exp(-700). */
static void NAME(expectations)(double *__restrict row, ptrdiff_t n, const double *digamma,
                               const double *scale) {
    for (ptrdiff_t k = 0; k < n; k++) {
        double base;
        const double x = NAME(digamma_double)(row[k], &base) - digamma[k];
        const double value = base * scale[k] * NAME(exp_double)(x > -700 ? x : -700);
        row[k] = x > -700 ? value : 0;
    }
}
#endif
