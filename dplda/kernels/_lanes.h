/* Sixteen floats, or 32-bit integers, at a time; included by _each_set.h for each instruction set.
 *
 * Every operation is elementwise and rounds as IEEE 754 says, and v_sum adds in a fixed order, so
 * that all sets give the same bits. The build forbids to contract a * b + c.
 */
#ifndef DPLDA_LANES_H
#define DPLDA_LANES_H
/* C has no name spaces: `v_add` is the function of the set that is being compiled. */
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
#define vi_odd NAME(vi_odd)
#define vs NAME(vs)
#define vs_load NAME(vs_load)
#define vs_store NAME(vs_store)
#define vs_all NAME(vs_all)
#define vs_pairs NAME(vs_pairs)
#define vs_add NAME(vs_add)
#define vs_sub NAME(vs_sub)
#define vs_mul NAME(vs_mul)
#define vs_positive NAME(vs_positive)
#define vs_pack NAME(vs_pack)
#define vs_bytes NAME(vs_bytes)
#define vs_two_rows NAME(vs_two_rows)
#define vi_in_order NAME(vi_in_order)
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
DPLDA_INLINE vec v_all(float a) { return (vec){_mm256_set1_ps(a), _mm256_set1_ps(a)}; }
DPLDA_INLINE veci vi_all(int32_t a) { return (veci){_mm256_set1_epi32(a), _mm256_set1_epi32(a)}; }
DPLDA_INLINE vec v_add(vec a, vec b) {
    return (vec){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
DPLDA_INLINE vec v_sub(vec a, vec b) {
    return (vec){_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
DPLDA_INLINE vec v_mul(vec a, vec b) {
    return (vec){_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
DPLDA_INLINE vec v_div(vec a, vec b) {
    return (vec){_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
DPLDA_INLINE vec v_max(vec a, vec b) { /* a > b ? a : b */
    return (vec){_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
DPLDA_INLINE vec v_min(vec a, vec b) {
    return (vec){_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
DPLDA_INLINE veci vi_add(veci a, veci b) {
    return (veci){_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
DPLDA_INLINE veci vi_sub(veci a, veci b) {
    return (veci){_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
DPLDA_INLINE veci vi_and(veci a, veci b) {
    return (veci){_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
DPLDA_INLINE veci vi_shift_left(veci a, int n) {
    return (veci){_mm256_slli_epi32(a.low, n), _mm256_slli_epi32(a.high, n)};
}
DPLDA_INLINE veci vi_shift_right(veci a, int n) {
    return (veci){_mm256_srai_epi32(a.low, n), _mm256_srai_epi32(a.high, n)};
}
DPLDA_INLINE veci v_truncate(vec a) {
    return (veci){_mm256_cvttps_epi32(a.low), _mm256_cvttps_epi32(a.high)};
}
DPLDA_INLINE vec v_float(veci a) {
    return (vec){_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}
DPLDA_INLINE veci v_as_int(vec a) {
    return (veci){_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)};
}
DPLDA_INLINE vec v_as_float(veci a) {
    return (vec){_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)};
}
DPLDA_INLINE vec v_above(vec a, vec b, vec x) {
    x.low = _mm256_and_ps(_mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ), x.low);
    x.high = _mm256_and_ps(_mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ), x.high);
    return x;
}
#elif defined(DPLDA_HAS_VECTORS)
typedef float vec __attribute__((vector_size(64)));
typedef int32_t veci __attribute__((vector_size(64)));
DPLDA_INLINE vec v_all(float a) { return a - (vec){0}; }
DPLDA_INLINE veci vi_all(int32_t a) { return a - (veci){0}; }
DPLDA_INLINE vec v_add(vec a, vec b) { return a + b; }
DPLDA_INLINE vec v_sub(vec a, vec b) { return a - b; }
DPLDA_INLINE vec v_mul(vec a, vec b) { return a * b; }
DPLDA_INLINE vec v_div(vec a, vec b) { return a / b; }
DPLDA_INLINE veci vi_add(veci a, veci b) { return a + b; }
DPLDA_INLINE veci vi_sub(veci a, veci b) { return a - b; }
DPLDA_INLINE veci vi_and(veci a, veci b) { return a & b; }
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
DPLDA_INLINE vec v_all(float a) {
    vec all;
    for (int j = 0; j < 16; j++) {
        all.lane[j] = a;
    }
    return all;
}
DPLDA_INLINE veci vi_all(int32_t a) {
    veci all;
    for (int j = 0; j < 16; j++) {
        all.lane[j] = a;
    }
    return all;
}
DPLDA_INLINE vec v_add(vec a, vec b) {
    for (int j = 0; j < 16; j++) {
        a.lane[j] += b.lane[j];
    }
    return a;
}
DPLDA_INLINE vec v_sub(vec a, vec b) {
    for (int j = 0; j < 16; j++) {
        a.lane[j] -= b.lane[j];
    }
    return a;
}
DPLDA_INLINE vec v_mul(vec a, vec b) {
    for (int j = 0; j < 16; j++) {
        a.lane[j] *= b.lane[j];
    }
    return a;
}
DPLDA_INLINE vec v_div(vec a, vec b) {
    for (int j = 0; j < 16; j++) {
        a.lane[j] /= b.lane[j];
    }
    return a;
}
DPLDA_INLINE veci vi_add(veci a, veci b) {
    for (int j = 0; j < 16; j++) {
        a.lane[j] += b.lane[j];
    }
    return a;
}
DPLDA_INLINE veci vi_sub(veci a, veci b) {
    for (int j = 0; j < 16; j++) {
        a.lane[j] -= b.lane[j];
    }
    return a;
}
DPLDA_INLINE veci vi_and(veci a, veci b) {
    for (int j = 0; j < 16; j++) {
        a.lane[j] &= b.lane[j];
    }
    return a;
}
DPLDA_INLINE veci vi_shift_left(veci a, int n) {
    for (int j = 0; j < 16; j++) {
        a.lane[j] = (int32_t)((uint32_t)a.lane[j] << n);
    }
    return a;
}
DPLDA_INLINE veci vi_shift_right(veci a, int n) {
    for (int j = 0; j < 16; j++) {
        a.lane[j] >>= n;
    }
    return a;
}
DPLDA_INLINE veci v_truncate(vec a) {
    veci whole;
    for (int j = 0; j < 16; j++) {
        whole.lane[j] = (int32_t)a.lane[j];
    }
    return whole;
}
DPLDA_INLINE vec v_float(veci a) {
    vec floats;
    for (int j = 0; j < 16; j++) {
        floats.lane[j] = (float)a.lane[j];
    }
    return floats;
}
DPLDA_INLINE vec v_above(vec a, vec b, vec x) {
    for (int j = 0; j < 16; j++) {
        x.lane[j] = a.lane[j] > b.lane[j] ? x.lane[j] : 0;
    }
    return x;
}
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
#elif !defined(DPLDA_USE_AVX2)
DPLDA_INLINE vec v_max(vec a, vec b) {
    float x[16], y[16];
    v_store(x, a);
    v_store(y, b);
    for (int j = 0; j < 16; j++) {
        x[j] = x[j] > y[j] ? x[j] : y[j];
    }
    return v_load(x);
}
DPLDA_INLINE vec v_min(vec a, vec b) {
    float x[16], y[16];
    v_store(x, a);
    v_store(y, b);
    for (int j = 0; j < 16; j++) {
        x[j] = x[j] < y[j] ? x[j] : y[j];
    }
    return v_load(x);
}
#endif

/* The sum of all elements: those 8 apart first, then 4, 2 and 1 apart. The order is the same in all
 * sets, and in v_sums: results depend on it. */
DPLDA_INLINE float v_sum(vec all) {
    float lane[16];
#if defined(DPLDA_USE_AVX512)
    return _mm512_reduce_add_ps((__m512)all); /* in this order */
#elif defined(DPLDA_USE_AVX2)
    const __m256 eight = _mm256_add_ps(all.low, all.high);
    const __m128 first = _mm256_castps256_ps128(eight), last = _mm256_extractf128_ps(eight, 1);
    _mm_storeu_ps(lane, _mm_add_ps(first, last));
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
#elif defined(DPLDA_HAS_VECTORS)
    typedef float vec8 __attribute__((vector_size(32)));
    typedef float vec4 __attribute__((vector_size(16)));
    vec8 eight[2];
    vec4 four[2];
    memcpy(eight, &all, sizeof eight);
    eight[0] += eight[1];
    memcpy(four, eight, sizeof four);
    four[0] += four[1];
    memcpy(lane, four, sizeof *four);
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
#endif
    v_store(lane, all);
    for (int apart = 8; apart; apart /= 2) {
        for (int j = 0; j < apart; j++) {
            lane[j] += lane[j + apart];
        }
    }
    return lane[0];
}

/* Halves of two vectors are added at once: lanes of a, then of b, those 8, 4, 2 or 1 apart. */
#if defined(DPLDA_USE_AVX512)
DPLDA_INLINE __m512 dplda_add_halves(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
DPLDA_INLINE __m512 dplda_add_quarters(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
DPLDA_INLINE __m512 dplda_add_pairs(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
}
DPLDA_INLINE __m512 dplda_add_neighbors(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}
#elif defined(DPLDA_USE_AVX2)
DPLDA_INLINE __m256 dplda_add_halves8(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
DPLDA_INLINE __m256 dplda_add_pairs8(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
}
DPLDA_INLINE __m256 dplda_add_neighbors8(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}
#endif

/* The v_sum of each of 16 vectors, in their order. */
DPLDA_INLINE vec v_sums(const vec *rows) {
#if defined(DPLDA_USE_AVX512)
    __m512 four[4];
    for (int j = 0; j < 4; j++) {
        const __m512 first = dplda_add_halves((__m512)rows[j], (__m512)rows[j + 4]);
        const __m512 last = dplda_add_halves((__m512)rows[j + 8], (__m512)rows[j + 12]);
        four[j] = dplda_add_quarters(first, last);
    }
    four[0] = dplda_add_pairs(four[0], four[1]);
    four[2] = dplda_add_pairs(four[2], four[3]);
    return (vec)dplda_add_neighbors(four[0], four[2]);
#elif defined(DPLDA_USE_AVX2)
    __m256 sums[2];
    for (int i = 0; i < 2; i++, rows += 8) {
        __m256 four[4];
        for (int j = 0; j < 4; j++) {
            const __m256 first = _mm256_add_ps(rows[j].low, rows[j].high);
            const __m256 last = _mm256_add_ps(rows[j + 4].low, rows[j + 4].high);
            four[j] = dplda_add_halves8(first, last);
        }
        four[0] = dplda_add_pairs8(four[0], four[1]);
        four[2] = dplda_add_pairs8(four[2], four[3]);
        sums[i] = dplda_add_neighbors8(four[0], four[2]);
    }
    return (vec){sums[0], sums[1]};
#else
    float sums[16];
    for (int j = 0; j < 16; j++) {
        sums[j] = v_sum(rows[j]);
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
DPLDA_INLINE vs vs_add(vs a, vs b) {
    return (vs){_mm256_add_epi16(a.low, b.low), _mm256_add_epi16(a.high, b.high)};
}
DPLDA_INLINE vs vs_sub(vs a, vs b) {
    return (vs){_mm256_sub_epi16(a.low, b.low), _mm256_sub_epi16(a.high, b.high)};
}
DPLDA_INLINE vs vs_mul(vs a, vs b) {
    return (vs){_mm256_mulhrs_epi16(a.low, b.low), _mm256_mulhrs_epi16(a.high, b.high)};
}
DPLDA_INLINE vs vs_load(const int16_t *from) { return vi_load((const int32_t *)from); }
DPLDA_INLINE void vs_store(int16_t *to, vs a) { vi_store((int32_t *)to, a); }
DPLDA_INLINE vs vs_pairs(int32_t a) { return vi_all(a); }
DPLDA_INLINE veci vi_add_products(veci sum, vs a, vs b) {
    sum.low = _mm256_add_epi32(sum.low, _mm256_madd_epi16(a.low, b.low));
    sum.high = _mm256_add_epi32(sum.high, _mm256_madd_epi16(a.high, b.high));
    return sum;
}
DPLDA_INLINE vs vs_positive(vs a) {
    const __m256i zero = _mm256_setzero_si256();
    return (vs){_mm256_max_epi16(a.low, zero), _mm256_max_epi16(a.high, zero)};
}
DPLDA_INLINE veci dplda_widen16(__m256i a) {
    return (veci){_mm256_cvtepi16_epi32(_mm256_castsi256_si128(a)),
                  _mm256_cvtepi16_epi32(_mm256_extracti128_si256(a, 1))};
}
DPLDA_INLINE veci vi_first(vs a) { return dplda_widen16(a.low); }
DPLDA_INLINE veci vi_last(vs a) { return dplda_widen16(a.high); }
DPLDA_INLINE vs vs_pack(veci a, veci b) {
    return (vs){_mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), 0xd8),
                _mm256_permute4x64_epi64(_mm256_packs_epi32(b.low, b.high), 0xd8)};
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
typedef struct {
    int16_t lane[8];
} dplda_eight;
typedef struct {
    int32_t lane[4];
} dplda_four;
DPLDA_INLINE dplda_eight dplda_add8(dplda_eight a, dplda_eight b) {
    for (int j = 0; j < 8; j++) {
        a.lane[j] = (int16_t)(a.lane[j] + b.lane[j]);
    }
    return a;
}
DPLDA_INLINE dplda_eight dplda_sub8(dplda_eight a, dplda_eight b) {
    for (int j = 0; j < 8; j++) {
        a.lane[j] = (int16_t)(a.lane[j] - b.lane[j]);
    }
    return a;
}
DPLDA_INLINE dplda_eight dplda_mul8(dplda_eight a, dplda_eight b) {
    for (int j = 0; j < 8; j++) {
        a.lane[j] = (int16_t)((a.lane[j] * b.lane[j] + (1 << 14)) >> 15);
    }
    return a;
}
DPLDA_INLINE dplda_eight dplda_max8(dplda_eight a, dplda_eight b) {
    for (int j = 0; j < 8; j++) {
        a.lane[j] = a.lane[j] > b.lane[j] ? a.lane[j] : b.lane[j];
    }
    return a;
}
DPLDA_INLINE dplda_four dplda_products8(dplda_four sum, dplda_eight a, dplda_eight b) {
    for (int j = 0; j < 4; j++) {
        const uint32_t even = (uint32_t)(a.lane[2 * j] * b.lane[2 * j]);
        const uint32_t odd = (uint32_t)(a.lane[2 * j + 1] * b.lane[2 * j + 1]);
        sum.lane[j] = (int32_t)((uint32_t)sum.lane[j] + even + odd);
    }
    return sum;
}
DPLDA_INLINE dplda_four dplda_low4(dplda_eight a) {
    const dplda_four low = {{a.lane[0], a.lane[1], a.lane[2], a.lane[3]}};
    return low;
}
DPLDA_INLINE dplda_four dplda_high4(dplda_eight a) {
    const dplda_four high = {{a.lane[4], a.lane[5], a.lane[6], a.lane[7]}};
    return high;
}
DPLDA_INLINE dplda_eight dplda_pack8(dplda_four a, dplda_four b) {
    dplda_eight packed;
    for (int j = 0; j < 4; j++) {
        packed.lane[j] = (int16_t)a.lane[j];
        packed.lane[j + 4] = (int16_t)b.lane[j];
    }
    return packed;
}
#elif defined(__aarch64__)
#include <arm_neon.h>
typedef int16x8_t dplda_eight;
typedef int32x4_t dplda_four;
DPLDA_INLINE dplda_eight dplda_add8(dplda_eight a, dplda_eight b) { return vaddq_s16(a, b); }
DPLDA_INLINE dplda_eight dplda_sub8(dplda_eight a, dplda_eight b) { return vsubq_s16(a, b); }
DPLDA_INLINE dplda_eight dplda_mul8(dplda_eight a, dplda_eight b) { return vqrdmulhq_s16(a, b); }
DPLDA_INLINE dplda_eight dplda_max8(dplda_eight a, dplda_eight b) { return vmaxq_s16(a, b); }
DPLDA_INLINE dplda_four dplda_low4(dplda_eight a) { return vmovl_s16(vget_low_s16(a)); }
DPLDA_INLINE dplda_four dplda_high4(dplda_eight a) { return vmovl_s16(vget_high_s16(a)); }
DPLDA_INLINE dplda_eight dplda_pack8(dplda_four a, dplda_four b) {
    return vcombine_s16(vqmovn_s32(a), vqmovn_s32(b));
}
DPLDA_INLINE dplda_four dplda_products8(dplda_four sum, dplda_eight a, dplda_eight b) {
    const dplda_four low = vmull_s16(vget_low_s16(a), vget_low_s16(b));
    return vaddq_s32(sum, vpaddq_s32(low, vmull_high_s16(a, b)));
}
#else
#include <emmintrin.h>
typedef __m128i dplda_eight;
typedef __m128i dplda_four;
DPLDA_INLINE dplda_eight dplda_add8(dplda_eight a, dplda_eight b) { return _mm_add_epi16(a, b); }
DPLDA_INLINE dplda_eight dplda_sub8(dplda_eight a, dplda_eight b) { return _mm_sub_epi16(a, b); }
DPLDA_INLINE dplda_eight dplda_max8(dplda_eight a, dplda_eight b) { return _mm_max_epi16(a, b); }
DPLDA_INLINE dplda_four dplda_low4(dplda_eight a) {
    return _mm_srai_epi32(_mm_unpacklo_epi16(a, a), 16);
}
DPLDA_INLINE dplda_four dplda_high4(dplda_eight a) {
    return _mm_srai_epi32(_mm_unpackhi_epi16(a, a), 16);
}
DPLDA_INLINE dplda_eight dplda_pack8(dplda_four a, dplda_four b) { return _mm_packs_epi32(a, b); }
DPLDA_INLINE dplda_four dplda_products8(dplda_four sum, dplda_eight a, dplda_eight b) {
    return _mm_add_epi32(sum, _mm_madd_epi16(a, b));
}
DPLDA_INLINE dplda_eight dplda_mul8(dplda_eight a, dplda_eight b) {
    const __m128i low = _mm_mullo_epi16(a, b), high = _mm_slli_epi16(_mm_mulhi_epi16(a, b), 1);
    const __m128i half = _mm_and_si128(_mm_srli_epi16(low, 14), _mm_set1_epi16(1));
    return _mm_add_epi16(_mm_add_epi16(high, _mm_srli_epi16(low, 15)), half);
}
#endif
DPLDA_INLINE void dplda_widen8(dplda_eight a, dplda_eight b, dplda_four *wide) {
    wide[0] = dplda_low4(a), wide[1] = dplda_high4(a);
    wide[2] = dplda_low4(b), wide[3] = dplda_high4(b);
}
#endif
typedef struct {
    dplda_eight part[4];
} vs;
DPLDA_INLINE vs vs_add(vs a, vs b) {
    for (int j = 0; j < 4; j++) {
        a.part[j] = dplda_add8(a.part[j], b.part[j]);
    }
    return a;
}
DPLDA_INLINE vs vs_sub(vs a, vs b) {
    for (int j = 0; j < 4; j++) {
        a.part[j] = dplda_sub8(a.part[j], b.part[j]);
    }
    return a;
}
DPLDA_INLINE vs vs_mul(vs a, vs b) {
    for (int j = 0; j < 4; j++) {
        a.part[j] = dplda_mul8(a.part[j], b.part[j]);
    }
    return a;
}
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
DPLDA_INLINE vs vs_positive(vs a) {
    const vs zero = vs_pairs(0);
    for (int j = 0; j < 4; j++) {
        a.part[j] = dplda_max8(a.part[j], zero.part[j]);
    }
    return a;
}
DPLDA_INLINE veci vi_add_products(veci sum, vs a, vs b) {
    dplda_four four[4];
    memcpy(four, &sum, sizeof sum);
    for (int j = 0; j < 4; j++) {
        four[j] = dplda_products8(four[j], a.part[j], b.part[j]);
    }
    memcpy(&sum, four, sizeof sum);
    return sum;
}
DPLDA_INLINE veci vi_first(vs a) {
    dplda_four four[4];
    veci wide;
    dplda_widen8(a.part[0], a.part[1], four);
    memcpy(&wide, four, sizeof wide);
    return wide;
}
DPLDA_INLINE veci vi_last(vs a) {
    dplda_four four[4];
    veci wide;
    dplda_widen8(a.part[2], a.part[3], four);
    memcpy(&wide, four, sizeof wide);
    return wide;
}
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

/* The integers at odd places. */
DPLDA_INLINE veci vi_odd(vs a) {
    veci pairs;
    memcpy(&pairs, &a, sizeof pairs);
    return vi_shift_right(pairs, 16);
}

/* 32 bytes. */
DPLDA_INLINE vs vs_bytes(const uint8_t *from) {
#if defined(DPLDA_USE_AVX512)
    return (vs)_mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)from));
#elif defined(DPLDA_USE_AVX2)
    const __m128i *two = (const __m128i *)from;
    return (vs){_mm256_cvtepu8_epi16(_mm_loadu_si128(two)),
                _mm256_cvtepu8_epi16(_mm_loadu_si128(two + 1))};
#else
    int16_t x[32];
    for (int j = 0; j < 32; j++) {
        x[j] = from[j];
    }
    return vs_load(x);
#endif
}

/* Bytes 0, ..., 15 of two rows in pairs, and bytes 16, ..., 31. */
DPLDA_INLINE void vs_two_rows(const uint8_t *row, const uint8_t *next, vs *first, vs *last) {
#if defined(DPLDA_USE_AVX512) || defined(DPLDA_USE_AVX2)
    const __m256i even = _mm256_loadu_si256((const __m256i *)row);
    const __m256i odd = _mm256_loadu_si256((const __m256i *)next);
    const __m256i low = _mm256_unpacklo_epi8(even, odd), high = _mm256_unpackhi_epi8(even, odd);
#endif
#if defined(DPLDA_USE_AVX512)
    *first = (vs)_mm512_cvtepu8_epi16(low), *last = (vs)_mm512_cvtepu8_epi16(high);
#elif defined(DPLDA_USE_AVX2)
    first->low = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(low));
    first->high = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(high));
    last->low = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(low, 1));
    last->high = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(high, 1));
#else
    int16_t both[64];
    for (int j = 0; j < 32; j++) {
        both[2 * j] = row[j], both[2 * j + 1] = next[j];
    }
    *first = vs_load(both), *last = vs_load(both + 32);
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
DPLDA_INLINE void vi_sums4(const veci *rows, int32_t *to) {
#if defined(DPLDA_USE_AVX512) || defined(DPLDA_USE_AVX2)
#if defined(DPLDA_USE_AVX512)
    const __m512i r0 = (__m512i)rows[0], r1 = (__m512i)rows[1];
    const __m512i r2 = (__m512i)rows[2], r3 = (__m512i)rows[3];
    const __m512i first = _mm512_add_epi32(_mm512_unpacklo_epi32(r0, r1),
                                           _mm512_unpackhi_epi32(r0, r1));
    const __m512i last = _mm512_add_epi32(_mm512_unpacklo_epi32(r2, r3),
                                          _mm512_unpackhi_epi32(r2, r3));
    const __m512i four = _mm512_add_epi32(_mm512_unpacklo_epi64(first, last),
                                          _mm512_unpackhi_epi64(first, last));
    const __m256i low = _mm512_castsi512_si256(four), high = _mm512_extracti64x4_epi64(four, 1);
    const __m256i half = _mm256_add_epi32(low, high);
#else
    __m256i eight[4];
    for (int j = 0; j < 4; j++) {
        eight[j] = _mm256_add_epi32(rows[j].low, rows[j].high);
    }
    const __m256i first = _mm256_hadd_epi32(eight[0], eight[1]);
    const __m256i half = _mm256_hadd_epi32(first, _mm256_hadd_epi32(eight[2], eight[3]));
#endif
    const __m128i upper = _mm256_extracti128_si256(half, 1);
    _mm_storeu_si128((__m128i *)to, _mm_add_epi32(_mm256_castsi256_si128(half), upper));
#else
    for (int j = 0; j < 4; j++) {
        to[j] = vi_sum(rows[j]);
    }
#endif
}

/* Eight doubles at a time. */
#ifdef DPLDA_USE_AVX2
typedef struct {
    __m256d low, high;
} NAME(vd);
DPLDA_INLINE NAME(vd) NAME(vd_all)(double a) {
    return (NAME(vd)){_mm256_set1_pd(a), _mm256_set1_pd(a)};
}
DPLDA_INLINE NAME(vd) NAME(vd_add)(NAME(vd) a, NAME(vd) b) {
    return (NAME(vd)){_mm256_add_pd(a.low, b.low), _mm256_add_pd(a.high, b.high)};
}
DPLDA_INLINE NAME(vd) NAME(vd_mul)(NAME(vd) a, NAME(vd) b) {
    return (NAME(vd)){_mm256_mul_pd(a.low, b.low), _mm256_mul_pd(a.high, b.high)};
}
DPLDA_INLINE NAME(vd) NAME(vd_div)(NAME(vd) a, NAME(vd) b) {
    return (NAME(vd)){_mm256_div_pd(a.low, b.low), _mm256_div_pd(a.high, b.high)};
}
DPLDA_INLINE NAME(vd) NAME(vd_load)(const double *from) {
    return (NAME(vd)){_mm256_loadu_pd(from), _mm256_loadu_pd(from + 4)};
}
DPLDA_INLINE void NAME(vd_store)(double *to, NAME(vd) a) {
    _mm256_storeu_pd(to, a.low);
    _mm256_storeu_pd(to + 4, a.high);
}
#else
#ifdef DPLDA_HAS_VECTORS
typedef double NAME(vd) __attribute__((vector_size(64)));
DPLDA_INLINE NAME(vd) NAME(vd_all)(double a) { return a - (NAME(vd)){0}; }
DPLDA_INLINE NAME(vd) NAME(vd_add)(NAME(vd) a, NAME(vd) b) { return a + b; }
DPLDA_INLINE NAME(vd) NAME(vd_mul)(NAME(vd) a, NAME(vd) b) { return a * b; }
DPLDA_INLINE NAME(vd) NAME(vd_div)(NAME(vd) a, NAME(vd) b) { return a / b; }
#else
typedef struct {
    double lane[8];
} NAME(vd);
DPLDA_INLINE NAME(vd) NAME(vd_all)(double a) {
    NAME(vd) all;
    for (int j = 0; j < 8; j++) {
        all.lane[j] = a;
    }
    return all;
}
DPLDA_INLINE NAME(vd) NAME(vd_add)(NAME(vd) a, NAME(vd) b) {
    for (int j = 0; j < 8; j++) {
        a.lane[j] += b.lane[j];
    }
    return a;
}
DPLDA_INLINE NAME(vd) NAME(vd_mul)(NAME(vd) a, NAME(vd) b) {
    for (int j = 0; j < 8; j++) {
        a.lane[j] *= b.lane[j];
    }
    return a;
}
DPLDA_INLINE NAME(vd) NAME(vd_div)(NAME(vd) a, NAME(vd) b) {
    for (int j = 0; j < 8; j++) {
        a.lane[j] /= b.lane[j];
    }
    return a;
}
#endif
DPLDA_INLINE NAME(vd) NAME(vd_load)(const double *from) {
    NAME(vd) a;
    memcpy(&a, from, sizeof a);
    return a;
}
DPLDA_INLINE void NAME(vd_store)(double *to, NAME(vd) a) { memcpy(to, &a, sizeof a); }
#endif

/* The sum of all elements: those 4 apart first, then 2 and 1 apart. */
DPLDA_INLINE double NAME(vd_sum)(NAME(vd) a) {
    double x[8];
    NAME(vd_store)(x, a);
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}
