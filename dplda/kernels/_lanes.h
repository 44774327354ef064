/* Sixteen floats, or 32-bit integers, at a time; included by _each_set.h for each instruction set.
 *
 * Every operation is elementwise and rounds as IEEE 754 says, and v_sum adds in a fixed order, so
 * that all sets give the same bits. The build forbids to contract a * b + c.
 */
#ifndef DPLDA_LANES_H
#define DPLDA_LANES_H
#define vec NAME(vec)
#define veci NAME(veci)
#define v_load NAME(v_load)
#define v_store NAME(v_store)
#define v_all NAME(v_all)
#define v_add NAME(v_add)
#define v_sub NAME(v_sub)
#define v_mul NAME(v_mul)
#define v_div NAME(v_div)
#define v_max NAME(v_max)
#define v_min NAME(v_min)
#define v_sqrt NAME(v_sqrt)
#define v_above NAME(v_above)
#define v_sum NAME(v_sum)
#define v_sums NAME(v_sums)
#define v_truncate NAME(v_truncate)
#define v_float NAME(v_float)
#define v_as_int NAME(v_as_int)
#define v_as_float NAME(v_as_float)
#define vi_load NAME(vi_load)
#define vi_store NAME(vi_store)
#define vi_all NAME(vi_all)
#define vi_add NAME(vi_add)
#define vi_sub NAME(vi_sub)
#define vi_and NAME(vi_and)
#define vi_shift_left NAME(vi_shift_left)
#define vi_shift_right NAME(vi_shift_right)
#define vi_squares NAME(vi_squares)
#define vw NAME(vw)
#define vw_add_squares NAME(vw_add_squares)
#define vw_sum NAME(vw_sum)
#define vw_sums NAME(vw_sums)
#define vd NAME(vd)
#define vd_load NAME(vd_load)
#define vd_store NAME(vd_store)
#define vd_all NAME(vd_all)
#define vd_add NAME(vd_add)
#define vd_mul NAME(vd_mul)
#define vd_div NAME(vd_div)
#define vd_sum NAME(vd_sum)
enum { DPLDA_WIDTH = 16 };
#endif

#ifdef DPLDA_USE_AVX2
/* Two registers: gcc keeps vectors that are longer than a register in memory. */
typedef struct {
    __m256 low, high;
} vec;
typedef struct {
    __m256i low, high;
} veci;
typedef veci vw; /* 8 sums of integers */
typedef struct {
    __m256d low, high;
} vd; /* eight doubles */
#define DPLDA_OF_ONE(type, name, from, f)                                \
    DPLDA_INLINE type name(from a) {                                     \
        const type x = {f(a.low), f(a.high)};                            \
        return x;                                                        \
    }
#define DPLDA_OF_TWO(type, name, f)                                      \
    DPLDA_INLINE type name(type a, type b) {                             \
        const type x = {f(a.low, b.low), f(a.high, b.high)};             \
        return x;                                                        \
    }
#define DPLDA_SAME(type, name, of, f)                                    \
    DPLDA_INLINE type name(of a) {                                       \
        const type x = {f(a), f(a)};                                     \
        return x;                                                        \
    }
#define DPLDA_SHIFT(name, f)                                             \
    DPLDA_INLINE veci name(veci a, int n) {                              \
        const veci x = {f(a.low, n), f(a.high, n)};                      \
        return x;                                                        \
    }
DPLDA_SAME(vec, v_all, float, _mm256_set1_ps)
DPLDA_SAME(veci, vi_all, int32_t, _mm256_set1_epi32)
DPLDA_SAME(vd, vd_all, double, _mm256_set1_pd)
DPLDA_OF_TWO(vec, v_add, _mm256_add_ps)
DPLDA_OF_TWO(vec, v_sub, _mm256_sub_ps)
DPLDA_OF_TWO(vec, v_mul, _mm256_mul_ps)
DPLDA_OF_TWO(vec, v_div, _mm256_div_ps)
DPLDA_OF_TWO(vec, v_max, _mm256_max_ps) /* a > b ? a : b */
DPLDA_OF_TWO(vec, v_min, _mm256_min_ps)
DPLDA_OF_TWO(veci, vi_add, _mm256_add_epi32)
DPLDA_OF_TWO(veci, vi_sub, _mm256_sub_epi32)
DPLDA_OF_TWO(veci, vi_and, _mm256_and_si256)
DPLDA_OF_TWO(vd, vd_add, _mm256_add_pd)
DPLDA_OF_TWO(vd, vd_mul, _mm256_mul_pd)
DPLDA_OF_TWO(vd, vd_div, _mm256_div_pd)
DPLDA_SHIFT(vi_shift_left, _mm256_slli_epi32)
DPLDA_SHIFT(vi_shift_right, _mm256_srai_epi32)
DPLDA_OF_ONE(vec, v_sqrt, vec, _mm256_sqrt_ps)
DPLDA_OF_ONE(veci, v_truncate, vec, _mm256_cvttps_epi32)
DPLDA_OF_ONE(vec, v_float, veci, _mm256_cvtepi32_ps)
DPLDA_OF_ONE(veci, v_as_int, vec, _mm256_castps_si256)
DPLDA_OF_ONE(vec, v_as_float, veci, _mm256_castsi256_ps)
#undef DPLDA_OF_ONE
#undef DPLDA_OF_TWO
#undef DPLDA_SAME
#undef DPLDA_SHIFT
DPLDA_INLINE vec v_above(vec a, vec b, vec x) {
    x.low = _mm256_and_ps(_mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ), x.low);
    x.high = _mm256_and_ps(_mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ), x.high);
    return x;
}
#elif defined(DPLDA_HAS_VECTORS)
typedef float vec __attribute__((vector_size(64)));
typedef int32_t veci __attribute__((vector_size(64)));
typedef int64_t vw __attribute__((vector_size(64))); /* 8 sums of integers */
#define DPLDA_OPERATION(type, name, a, b, result) \
    DPLDA_INLINE type name(type a, type b) { return result; }
DPLDA_INLINE vec v_all(float a) { return a - (vec){0}; }
DPLDA_INLINE veci vi_all(int32_t a) { return a - (veci){0}; }
DPLDA_OPERATION(vec, v_add, a, b, a + b)
DPLDA_OPERATION(vec, v_sub, a, b, a - b)
DPLDA_OPERATION(vec, v_mul, a, b, a *b)
DPLDA_OPERATION(vec, v_div, a, b, a / b)
DPLDA_OPERATION(veci, vi_add, a, b, a + b)
DPLDA_OPERATION(veci, vi_sub, a, b, a - b)
DPLDA_OPERATION(veci, vi_and, a, b, a &b)
#undef DPLDA_OPERATION
DPLDA_INLINE veci vi_shift_left(veci a, int n) { return a << n; }
DPLDA_INLINE veci vi_shift_right(veci a, int n) { return a >> n; } /* keeps the sign */
/* Toward zero; every element must fit. */
DPLDA_INLINE veci v_truncate(vec a) { return __builtin_convertvector(a, veci); }
DPLDA_INLINE vec v_float(veci a) { return __builtin_convertvector(a, vec); }
/* x where a > b, and 0 elsewhere. */
DPLDA_INLINE vec v_above(vec a, vec b, vec x) { return (vec)((veci)x & (a > b)); }
#else
typedef struct {
    float lane[16];
} vec;
typedef struct {
    int32_t lane[16];
} veci;
typedef struct {
    int64_t lane[8];
} vw;
#define DPLDA_OPERATION(type, name, result)                     \
    DPLDA_INLINE type name(type x, type y) {                    \
        type z;                                                 \
        for (int j = 0; j < 16; j++) {                          \
            z.lane[j] = result;                                 \
        }                                                       \
        return z;                                               \
    }
#define a x.lane[j]
#define b y.lane[j]
DPLDA_OPERATION(vec, v_add, a + b)
DPLDA_OPERATION(vec, v_sub, a - b)
DPLDA_OPERATION(vec, v_mul, a *b)
DPLDA_OPERATION(vec, v_div, a / b)
DPLDA_OPERATION(veci, vi_add, a + b)
DPLDA_OPERATION(veci, vi_sub, a - b)
DPLDA_OPERATION(veci, vi_and, a &b)
#undef a
#undef b
#undef DPLDA_OPERATION
#define DPLDA_EACH(type, result)        \
    type z;                             \
    for (int j = 0; j < 16; j++) {      \
        z.lane[j] = result;             \
    }                                   \
    return z;
DPLDA_INLINE vec v_all(float a) { DPLDA_EACH(vec, a) }
DPLDA_INLINE veci vi_all(int32_t a) { DPLDA_EACH(veci, a) }
DPLDA_INLINE veci vi_shift_left(veci x, int n) { DPLDA_EACH(veci, (int32_t)((uint32_t)x.lane[j] << n)) }
DPLDA_INLINE veci vi_shift_right(veci x, int n) { DPLDA_EACH(veci, x.lane[j] >> n) }
DPLDA_INLINE veci v_truncate(vec x) { DPLDA_EACH(veci, (int32_t)x.lane[j]) }
DPLDA_INLINE vec v_float(veci x) { DPLDA_EACH(vec, (float)x.lane[j]) }
DPLDA_INLINE vec v_above(vec x, vec b, vec c) { DPLDA_EACH(vec, x.lane[j] > b.lane[j] ? c.lane[j] : 0) }
#undef DPLDA_EACH
#endif

/* At any address. */
#ifdef DPLDA_USE_AVX2
DPLDA_INLINE vec v_load(const float *from) {
    const vec a = {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
    return a;
}
DPLDA_INLINE void v_store(float *to, vec a) {
    _mm256_storeu_ps(to, a.low);
    _mm256_storeu_ps(to + 8, a.high);
}
DPLDA_INLINE veci vi_load(const int32_t *from) {
    const __m256i *two = (const __m256i *)from;
    const veci a = {_mm256_loadu_si256(two), _mm256_loadu_si256(two + 1)};
    return a;
}
DPLDA_INLINE void vi_store(int32_t *to, veci a) {
    _mm256_storeu_si256((__m256i *)to, a.low);
    _mm256_storeu_si256((__m256i *)to + 1, a.high);
}
#else
DPLDA_INLINE vec v_load(const float *from) {
    vec a;
    memcpy(&a, from, sizeof a);
    return a;
}
DPLDA_INLINE void v_store(float *to, vec a) { memcpy(to, &a, sizeof a); }
DPLDA_INLINE veci vi_load(const int32_t *from) {
    veci a;
    memcpy(&a, from, sizeof a);
    return a;
}
DPLDA_INLINE void vi_store(int32_t *to, veci a) { memcpy(to, &a, sizeof a); }
DPLDA_INLINE veci v_as_int(vec a) {
    veci bits;
    memcpy(&bits, &a, sizeof bits);
    return bits;
}
DPLDA_INLINE vec v_as_float(veci bits) {
    vec a;
    memcpy(&a, &bits, sizeof a);
    return a;
}
#endif

/* a > b ? a : b, and a < b ? a : b: b if either is NaN. */
#if defined(DPLDA_USE_AVX512)
DPLDA_INLINE vec v_max(vec a, vec b) { return (vec)_mm512_max_ps((__m512)a, (__m512)b); }
DPLDA_INLINE vec v_min(vec a, vec b) { return (vec)_mm512_min_ps((__m512)a, (__m512)b); }
DPLDA_INLINE vec v_sqrt(vec a) { return (vec)_mm512_sqrt_ps((__m512)a); }
#elif !defined(DPLDA_USE_AVX2)
#define DPLDA_EACH_LANE(b, result)                  \
    float x[16], y[16];                             \
    v_store(x, a);                                  \
    v_store(y, b);                                  \
    for (int j = 0; j < 16; j++) {                  \
        x[j] = result;                              \
    }                                               \
    return v_load(x);
DPLDA_INLINE vec v_max(vec a, vec b) { DPLDA_EACH_LANE(b, x[j] > y[j] ? x[j] : y[j]) }
DPLDA_INLINE vec v_min(vec a, vec b) { DPLDA_EACH_LANE(b, x[j] < y[j] ? x[j] : y[j]) }
DPLDA_INLINE vec v_sqrt(vec a) { DPLDA_EACH_LANE(a, sqrtf(y[j])) }
#undef DPLDA_EACH_LANE
#endif

/* The sum of all elements: those 8 apart first, then 4, 2 and 1 apart. */
DPLDA_INLINE float v_sum(vec a) {
    float x[16];
#if defined(DPLDA_USE_AVX512)
    return _mm512_reduce_add_ps((__m512)a); /* in this order */
#elif defined(DPLDA_USE_AVX2)
    const __m256 y = _mm256_add_ps(a.low, a.high);
    const __m128 z = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    _mm_storeu_ps(x, z);
    return (x[0] + x[2]) + (x[1] + x[3]);
#elif defined(DPLDA_HAS_VECTORS)
    typedef float eight __attribute__((vector_size(32)));
    typedef float four __attribute__((vector_size(16)));
    eight y[2];
    four z[2];
    memcpy(y, &a, sizeof y);
    y[0] += y[1];
    memcpy(z, y, sizeof z);
    z[0] += z[1];
    memcpy(x, z, sizeof *z);
    return (x[0] + x[2]) + (x[1] + x[3]);
#endif
    v_store(x, a);
    for (int apart = 8; apart; apart /= 2) {
        for (int j = 0; j < apart; j++) {
            x[j] += x[j + apart];
        }
    }
    return x[0];
}

/* The v_sum of each of 16 vectors, in their order: halves of two vectors are added at once. */
DPLDA_INLINE vec v_sums(const vec *a) {
#if defined(DPLDA_USE_AVX512)
#define DPLDA_FOLD(f, lower, upper, a, b) _mm512_add_ps(f(a, b, lower), f(a, b, upper))
    __m512 four[4];
    for (int j = 0; j < 4; j++) {
        const __m512 x = DPLDA_FOLD(_mm512_shuffle_f32x4, 0x44, 0xee, (__m512)a[j], (__m512)a[j + 4]);
        const __m512 y =
            DPLDA_FOLD(_mm512_shuffle_f32x4, 0x44, 0xee, (__m512)a[j + 8], (__m512)a[j + 12]);
        four[j] = DPLDA_FOLD(_mm512_shuffle_f32x4, 0x88, 0xdd, x, y);
    }
    for (int j = 0; j < 4; j += 2) {
        four[j] = DPLDA_FOLD(_mm512_shuffle_ps, 0x44, 0xee, four[j], four[j + 1]);
    }
    return (vec)DPLDA_FOLD(_mm512_shuffle_ps, 0x88, 0xdd, four[0], four[2]);
#undef DPLDA_FOLD
#elif defined(DPLDA_USE_AVX2)
#define DPLDA_FOLD(f, lower, upper, a, b) _mm256_add_ps(f(a, b, lower), f(a, b, upper))
    __m256 sums[2];
    vec result;
    for (int i = 0; i < 2; i++, a += 8) {
        __m256 four[4];
        for (int j = 0; j < 4; j++) {
            const __m256 x = _mm256_add_ps(a[j].low, a[j].high);
            const __m256 y = _mm256_add_ps(a[j + 4].low, a[j + 4].high);
            four[j] = DPLDA_FOLD(_mm256_permute2f128_ps, 0x20, 0x31, x, y);
        }
        four[0] = DPLDA_FOLD(_mm256_shuffle_ps, 0x44, 0xee, four[0], four[1]);
        four[2] = DPLDA_FOLD(_mm256_shuffle_ps, 0x44, 0xee, four[2], four[3]);
        sums[i] = DPLDA_FOLD(_mm256_shuffle_ps, 0x88, 0xdd, four[0], four[2]);
    }
    result.low = sums[0], result.high = sums[1];
    return result;
#undef DPLDA_FOLD
#else
    float sums[16];
    for (int j = 0; j < 16; j++) {
        sums[j] = v_sum(a[j]);
    }
    return v_load(sums);
#endif
}

/* The sum of the squares, exact. */
DPLDA_INLINE int64_t vi_squares(veci a) {
    int32_t x[16];
    int64_t total = 0;
    vi_store(x, a);
    for (int j = 0; j < 16; j++) {
        total += (int64_t)x[j] * x[j];
    }
    return total;
}

/* Add the squares of 16 integers to 8 sums, exact: of two integers to each. */
DPLDA_INLINE vw vw_add_squares(vw sum, veci a) {
#if defined(DPLDA_USE_AVX512)
    const __m512i even = (__m512i)a, odd = _mm512_srli_epi64(even, 32);
    return sum + (vw)_mm512_mul_epi32(even, even) + (vw)_mm512_mul_epi32(odd, odd);
#elif defined(DPLDA_USE_AVX2)
    const __m256i low = _mm256_srli_epi64(a.low, 32), high = _mm256_srli_epi64(a.high, 32);
    const __m256i first = _mm256_add_epi64(_mm256_mul_epi32(a.low, a.low), _mm256_mul_epi32(low, low));
    const __m256i last =
        _mm256_add_epi64(_mm256_mul_epi32(a.high, a.high), _mm256_mul_epi32(high, high));
    sum.low = _mm256_add_epi64(sum.low, first);
    sum.high = _mm256_add_epi64(sum.high, last);
    return sum;
#else
    int32_t x[16];
    int64_t sums[8];
    vi_store(x, a);
    memcpy(sums, &sum, sizeof sums);
    for (int j = 0; j < 8; j++) {
        sums[j] += (int64_t)x[j] * x[j] + (int64_t)x[j + 8] * x[j + 8];
    }
    memcpy(&sum, sums, sizeof sum);
    return sum;
#endif
}

DPLDA_INLINE int64_t vw_sum(vw a) {
    int64_t x[8];
    memcpy(x, &a, sizeof x);
    return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7]));
}

/* The vw_sum of each of n vectors; fast for 4. */
DPLDA_INLINE void vw_sums(const vw *a, int n, int64_t *to) {
#if defined(DPLDA_USE_AVX512)
#define DPLDA_FOLD(a, b) _mm512_add_epi64(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b))
    if (n == 4) {
        const __m512i x = DPLDA_FOLD((__m512i)a[0], (__m512i)a[1]);
        const __m512i y = DPLDA_FOLD((__m512i)a[2], (__m512i)a[3]);
        const __m512i lower = _mm512_shuffle_i64x2(x, y, 0x44), upper = _mm512_shuffle_i64x2(x, y, 0xee);
        const __m512i z = _mm512_add_epi64(lower, upper); /* two parts of x, and two of y */
        const __m512i sums = _mm512_add_epi64(z, _mm512_shuffle_i64x2(z, z, 0xb1));
        _mm_storeu_si128((__m128i *)to, _mm512_castsi512_si128(sums));
        _mm_storeu_si128((__m128i *)(to + 2), _mm512_extracti32x4_epi32(sums, 2));
        return;
    }
#undef DPLDA_FOLD
#endif
    for (int i = 0; i < n; i++) {
        to[i] = vw_sum(a[i]);
    }
}

/* Eight doubles at a time. */
#ifdef DPLDA_USE_AVX2
#elif defined(DPLDA_HAS_VECTORS)
typedef double vd __attribute__((vector_size(64)));
DPLDA_INLINE vd vd_all(double a) { return a - (vd){0}; }
DPLDA_INLINE vd vd_add(vd a, vd b) { return a + b; }
DPLDA_INLINE vd vd_mul(vd a, vd b) { return a * b; }
DPLDA_INLINE vd vd_div(vd a, vd b) { return a / b; }
#else
typedef struct {
    double lane[8];
} vd;
#define DPLDA_EACH(result)              \
    vd z;                               \
    for (int j = 0; j < 8; j++) {       \
        z.lane[j] = result;             \
    }                                   \
    return z;
DPLDA_INLINE vd vd_all(double a) { DPLDA_EACH(a) }
DPLDA_INLINE vd vd_add(vd a, vd b) { DPLDA_EACH(a.lane[j] + b.lane[j]) }
DPLDA_INLINE vd vd_mul(vd a, vd b) { DPLDA_EACH(a.lane[j] * b.lane[j]) }
DPLDA_INLINE vd vd_div(vd a, vd b) { DPLDA_EACH(a.lane[j] / b.lane[j]) }
#undef DPLDA_EACH
#endif
#ifdef DPLDA_USE_AVX2
DPLDA_INLINE vd vd_load(const double *from) {
    const vd a = {_mm256_loadu_pd(from), _mm256_loadu_pd(from + 4)};
    return a;
}
DPLDA_INLINE void vd_store(double *to, vd a) {
    _mm256_storeu_pd(to, a.low);
    _mm256_storeu_pd(to + 4, a.high);
}
#else
DPLDA_INLINE vd vd_load(const double *from) {
    vd a;
    memcpy(&a, from, sizeof a);
    return a;
}
DPLDA_INLINE void vd_store(double *to, vd a) { memcpy(to, &a, sizeof a); }
#endif

/* The sum of all elements: those 4 apart first, then 2 and 1 apart. */
DPLDA_INLINE double vd_sum(vd a) {
    double x[8];
    vd_store(x, a);
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}
