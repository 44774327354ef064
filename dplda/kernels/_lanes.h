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
#define vi_sum NAME(vi_sum)
#define vi_sums4 NAME(vi_sums4)
#define vi_add_products NAME(vi_add_products)
#define vi_first NAME(vi_first)
#define vi_last NAME(vi_last)
#define vs NAME(vs)
#define vs_load NAME(vs_load)
#define vs_store NAME(vs_store)
#define vs_all NAME(vs_all)
#define vs_pairs NAME(vs_pairs)
#define vs_add NAME(vs_add)
#define vs_sub NAME(vs_sub)
#define vs_mul NAME(vs_mul)
#define vs_larger NAME(vs_larger)
#define vs_products NAME(vs_products)
#define vs_widen NAME(vs_widen)
#define vs_positive NAME(vs_positive)
#define vs_pack NAME(vs_pack)
#define vs_bytes NAME(vs_bytes)
#define vs_two_rows NAME(vs_two_rows)
#define vi_in_order NAME(vi_in_order)
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
typedef veci vs; /* 32 integers of 16 bits */
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

/* Modulo 2^32. */
DPLDA_INLINE int32_t vi_sum(veci a) {
#if defined(DPLDA_USE_AVX512)
    return _mm512_reduce_add_epi32((__m512i)a);
#else
    int32_t x[16];
    uint32_t total = 0;
    vi_store(x, a);
    for (int j = 0; j < 16; j++) {
        total += (uint32_t)x[j];
    }
    return (int32_t)total;
#endif
}

/* 32 integers of 16 bits at a time. Products of vs_mul are rounded, times 2^-15. */
#if defined(DPLDA_USE_AVX2)
#define DPLDA_OF_TWO(name, f)                                            \
    DPLDA_INLINE vs name(vs a, vs b) {                                   \
        const vs x = {f(a.low, b.low), f(a.high, b.high)};               \
        return x;                                                        \
    }
DPLDA_OF_TWO(vs_add, _mm256_add_epi16)
DPLDA_OF_TWO(vs_sub, _mm256_sub_epi16)
DPLDA_OF_TWO(vs_mul, _mm256_mulhrs_epi16)
DPLDA_OF_TWO(vs_larger, _mm256_max_epi16)
DPLDA_OF_TWO(vs_products, _mm256_madd_epi16)
#undef DPLDA_OF_TWO
DPLDA_INLINE vs vs_load(const int16_t *from) { return vi_load((const int32_t *)from); }
DPLDA_INLINE void vs_store(int16_t *to, vs a) { vi_store((int32_t *)to, a); }
DPLDA_INLINE vs vs_pairs(int32_t a) { return vi_all(a); }
DPLDA_INLINE veci vi_add_products(veci sum, vs a, vs b) { return vi_add(sum, vs_products(a, b)); }
DPLDA_INLINE vs vs_positive(vs a) { return vs_larger(a, vi_all(0)); }
DPLDA_INLINE veci vs_widen(__m256i a) {
    const veci x = {_mm256_cvtepi16_epi32(_mm256_castsi256_si128(a)),
                    _mm256_cvtepi16_epi32(_mm256_extracti128_si256(a, 1))};
    return x;
}
DPLDA_INLINE veci vi_first(vs a) { return vs_widen(a.low); }
DPLDA_INLINE veci vi_last(vs a) { return vs_widen(a.high); }
DPLDA_INLINE vs vs_pack(veci a, veci b) {
    const vs x = {_mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), 0xd8),
                  _mm256_permute4x64_epi64(_mm256_packs_epi32(b.low, b.high), 0xd8)};
    return x;
}
#elif defined(DPLDA_USE_AVX512)
typedef int16_t vs __attribute__((vector_size(64)));
DPLDA_INLINE vs vs_load(const int16_t *from) { return (vs)_mm512_loadu_si512(from); }
DPLDA_INLINE void vs_store(int16_t *to, vs a) { _mm512_storeu_si512(to, (__m512i)a); }
DPLDA_INLINE vs vs_pairs(int32_t a) { return (vs)vi_all(a); }
DPLDA_INLINE vs vs_add(vs a, vs b) { return (vs)_mm512_add_epi16((__m512i)a, (__m512i)b); }
DPLDA_INLINE vs vs_sub(vs a, vs b) { return (vs)_mm512_sub_epi16((__m512i)a, (__m512i)b); }
DPLDA_INLINE vs vs_mul(vs a, vs b) { return (vs)_mm512_mulhrs_epi16((__m512i)a, (__m512i)b); }
DPLDA_INLINE vs vs_positive(vs a) {
    return (vs)_mm512_max_epi16((__m512i)a, _mm512_setzero_si512());
}
/* in place: gcc 12 copies the sums of the intrinsic back and forth */
DPLDA_INLINE veci vi_add_products(veci sum, vs a, vs b) {
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "vm"(b));
    return sum;
}
DPLDA_INLINE veci vi_first(vs a) {
    return (veci)_mm512_cvtepi16_epi32(_mm512_castsi512_si256((__m512i)a));
}
DPLDA_INLINE veci vi_last(vs a) {
    return (veci)_mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64((__m512i)a, 1));
}
DPLDA_INLINE vs vs_pack(veci a, veci b) {
    const __m512i low = _mm512_castsi256_si512(_mm512_cvtsepi32_epi16((__m512i)a));
    return (vs)_mm512_inserti64x4(low, _mm512_cvtsepi32_epi16((__m512i)b), 1);
}
#else /* four times eight, as all processors of 64 bits have them */
#ifndef DPLDA_EIGHT
#define DPLDA_EIGHT
#if defined(DPLDA_PLAIN) || !(defined(__SSE2__) || defined(_M_X64) || defined(__aarch64__))
#define DPLDA_LOOP(n, type, result) \
    type z;                         \
    for (int j = 0; j < n; j++) {   \
        z.lane[j] = result;         \
    }                               \
    return z;
typedef struct {
    int16_t lane[8];
} dplda_eight;
typedef struct {
    int32_t lane[4];
} dplda_four;
#define DPLDA_OPERATION(name, result) \
    DPLDA_INLINE dplda_eight name(dplda_eight a, dplda_eight b) { DPLDA_LOOP(8, dplda_eight, result) }
DPLDA_OPERATION(dplda_add8, (int16_t)(a.lane[j] + b.lane[j]))
DPLDA_OPERATION(dplda_sub8, (int16_t)(a.lane[j] - b.lane[j]))
DPLDA_OPERATION(dplda_mul8, (int16_t)((a.lane[j] * b.lane[j] + (1 << 14)) >> 15))
DPLDA_OPERATION(dplda_max8, a.lane[j] > b.lane[j] ? a.lane[j] : b.lane[j])
DPLDA_INLINE dplda_four dplda_products8(dplda_four s, dplda_eight a, dplda_eight b) {
    DPLDA_LOOP(4, dplda_four, (int32_t)((uint32_t)s.lane[j] + (uint32_t)(a.lane[2 * j] * b.lane[2 * j]) +
                                        (uint32_t)(a.lane[2 * j + 1] * b.lane[2 * j + 1])))
}
DPLDA_INLINE dplda_four dplda_low4(dplda_eight a) { DPLDA_LOOP(4, dplda_four, a.lane[j]) }
DPLDA_INLINE dplda_four dplda_high4(dplda_eight a) { DPLDA_LOOP(4, dplda_four, a.lane[j + 4]) }
DPLDA_INLINE dplda_eight dplda_pack8(dplda_four a, dplda_four b) {
    DPLDA_LOOP(8, dplda_eight, (int16_t)(j < 4 ? a.lane[j & 3] : b.lane[j & 3]))
}
#undef DPLDA_LOOP
#undef DPLDA_OPERATION
#elif defined(__aarch64__)
#include <arm_neon.h>
typedef int16x8_t dplda_eight;
typedef int32x4_t dplda_four;
#define dplda_add8 vaddq_s16
#define dplda_sub8 vsubq_s16
#define dplda_mul8 vqrdmulhq_s16
#define dplda_max8 vmaxq_s16
#define dplda_low4(a) vmovl_s16(vget_low_s16(a))
#define dplda_high4(a) vmovl_s16(vget_high_s16(a))
#define dplda_pack8(a, b) vcombine_s16(vqmovn_s32(a), vqmovn_s32(b))
DPLDA_INLINE dplda_four dplda_products8(dplda_four sum, dplda_eight a, dplda_eight b) {
    const dplda_four low = vmull_s16(vget_low_s16(a), vget_low_s16(b));
    return vaddq_s32(sum, vpaddq_s32(low, vmull_high_s16(a, b)));
}
#else
#include <emmintrin.h>
typedef __m128i dplda_eight;
typedef __m128i dplda_four;
#define dplda_add8 _mm_add_epi16
#define dplda_sub8 _mm_sub_epi16
#define dplda_max8 _mm_max_epi16
#define dplda_low4(a) _mm_srai_epi32(_mm_unpacklo_epi16(a, a), 16)
#define dplda_high4(a) _mm_srai_epi32(_mm_unpackhi_epi16(a, a), 16)
#define dplda_pack8 _mm_packs_epi32
#define dplda_products8(sum, a, b) _mm_add_epi32(sum, _mm_madd_epi16(a, b))
DPLDA_INLINE dplda_eight dplda_mul8(dplda_eight a, dplda_eight b) {
    const __m128i low = _mm_mullo_epi16(a, b), high = _mm_slli_epi16(_mm_mulhi_epi16(a, b), 1);
    const __m128i half = _mm_and_si128(_mm_srli_epi16(low, 14), _mm_set1_epi16(1));
    return _mm_add_epi16(_mm_add_epi16(high, _mm_srli_epi16(low, 15)), half);
}
#endif
#endif
typedef struct {
    dplda_eight part[4];
} vs;
#define DPLDA_OPERATION(name, f)                            \
    DPLDA_INLINE vs name(vs a, vs b) {                      \
        for (int j = 0; j < 4; j++) {                       \
            a.part[j] = f(a.part[j], b.part[j]);            \
        }                                                   \
        return a;                                           \
    }
DPLDA_OPERATION(vs_add, dplda_add8)
DPLDA_OPERATION(vs_sub, dplda_sub8)
DPLDA_OPERATION(vs_mul, dplda_mul8)
DPLDA_OPERATION(vs_larger, dplda_max8)
#undef DPLDA_OPERATION
DPLDA_INLINE vs vs_load(const int16_t *from) {
    vs a;
    memcpy(&a, from, sizeof a);
    return a;
}
DPLDA_INLINE void vs_store(int16_t *to, vs a) { memcpy(to, &a, sizeof a); }
DPLDA_INLINE vs vs_pairs(int32_t pair) {
    const veci pairs = vi_all(pair);
    vs a;
    memcpy(&a, &pairs, sizeof a);
    return a;
}
DPLDA_INLINE vs vs_positive(vs a) { return vs_larger(a, vs_pairs(0)); }
DPLDA_INLINE veci vi_add_products(veci sum, vs a, vs b) {
    dplda_four four[4];
    memcpy(four, &sum, sizeof sum);
    for (int j = 0; j < 4; j++) {
        four[j] = dplda_products8(four[j], a.part[j], b.part[j]);
    }
    memcpy(&sum, four, sizeof sum);
    return sum;
}
DPLDA_INLINE veci vs_widen(dplda_eight a, dplda_eight b) {
    const dplda_four four[4] = {dplda_low4(a), dplda_high4(a), dplda_low4(b), dplda_high4(b)};
    veci wide;
    memcpy(&wide, four, sizeof wide);
    return wide;
}
DPLDA_INLINE veci vi_first(vs a) { return vs_widen(a.part[0], a.part[1]); }
DPLDA_INLINE veci vi_last(vs a) { return vs_widen(a.part[2], a.part[3]); }
DPLDA_INLINE vs vs_pack(veci a, veci b) {
    dplda_four four[8];
    vs packed;
    memcpy(four, &a, sizeof a), memcpy(four + 4, &b, sizeof b);
    for (int j = 0; j < 4; j++) {
        packed.part[j] = dplda_pack8(four[2 * j], four[2 * j + 1]);
    }
    return packed;
}
#endif
DPLDA_INLINE vs vs_all(int16_t a) { return vs_pairs((int32_t)((uint16_t)a * 0x10001u)); }

/* 32 bytes. */
DPLDA_INLINE vs vs_bytes(const uint8_t *from) {
#if defined(DPLDA_USE_AVX512)
    return (vs)_mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)from));
#elif defined(DPLDA_USE_AVX2)
    const __m128i *two = (const __m128i *)from;
    const vs x = {_mm256_cvtepu8_epi16(_mm_loadu_si128(two)),
                  _mm256_cvtepu8_epi16(_mm_loadu_si128(two + 1))};
    return x;
#else
    int16_t x[32];
    for (int j = 0; j < 32; j++) {
        x[j] = from[j];
    }
    return vs_load(x);
#endif
}

/* Bytes 0, ..., 15 of two rows in pairs, and bytes 16, ..., 31. */
DPLDA_INLINE void vs_two_rows(const uint8_t *a, const uint8_t *b, vs *first, vs *last) {
#if defined(DPLDA_USE_AVX512) || defined(DPLDA_USE_AVX2)
    const __m256i x = _mm256_loadu_si256((const __m256i *)a);
    const __m256i y = _mm256_loadu_si256((const __m256i *)b);
    const __m256i low = _mm256_unpacklo_epi8(x, y), high = _mm256_unpackhi_epi8(x, y);
#endif
#if defined(DPLDA_USE_AVX512)
    *first = (vs)_mm512_cvtepu8_epi16(low), *last = (vs)_mm512_cvtepu8_epi16(high);
#elif defined(DPLDA_USE_AVX2)
    first->low = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(low));
    first->high = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(high));
    last->low = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(low, 1));
    last->high = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(high, 1));
#else
    int16_t x[64];
    for (int j = 0; j < 32; j++) {
        x[2 * j] = a[j], x[2 * j + 1] = b[j];
    }
    *first = vs_load(x), *last = vs_load(x + 32);
#endif
}

/* Sums of `vs_two_rows` in the order of the bytes. */
DPLDA_INLINE void vi_in_order(veci *first, veci *last) {
#if defined(DPLDA_USE_AVX512)
    const __m512i a = (__m512i)*first, b = (__m512i)*last;
    *first = (veci)_mm512_permutex2var_epi64(a, _mm512_setr_epi64(0, 1, 2, 3, 8, 9, 10, 11), b);
    *last = (veci)_mm512_permutex2var_epi64(a, _mm512_setr_epi64(4, 5, 6, 7, 12, 13, 14, 15), b);
#endif
}

/* The sum of each of four vectors, modulo 2^32. */
DPLDA_INLINE void vi_sums4(const veci *a, int32_t *to) {
#if defined(DPLDA_USE_AVX512)
#define DPLDA_FOLD(size, a, b) \
    _mm512_add_epi32(_mm512_unpacklo_##size(a, b), _mm512_unpackhi_##size(a, b))
    const __m512i x = DPLDA_FOLD(epi32, (__m512i)a[0], (__m512i)a[1]);
    const __m512i y = DPLDA_FOLD(epi32, (__m512i)a[2], (__m512i)a[3]), z = DPLDA_FOLD(epi64, x, y);
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(z), _mm512_extracti64x4_epi64(z, 1));
#undef DPLDA_FOLD
#elif defined(DPLDA_USE_AVX2)
#define DPLDA_FOLD(i) _mm256_add_epi32(a[i].low, a[i].high)
    const __m256i x = _mm256_hadd_epi32(DPLDA_FOLD(0), DPLDA_FOLD(1));
    const __m256i half = _mm256_hadd_epi32(x, _mm256_hadd_epi32(DPLDA_FOLD(2), DPLDA_FOLD(3)));
#undef DPLDA_FOLD
#endif
#if defined(DPLDA_USE_AVX512) || defined(DPLDA_USE_AVX2)
    const __m128i upper = _mm256_extracti128_si256(half, 1);
    _mm_storeu_si128((__m128i *)to, _mm_add_epi32(_mm256_castsi256_si128(half), upper));
#else
    for (int i = 0; i < 4; i++) {
        to[i] = vi_sum(a[i]);
    }
#endif
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
