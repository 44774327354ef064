/* Contributions of units, word by word, in 16-bit integers; in _variational.h.
 *
 * A document d contributes u (p_k / S - c_k) to cell k of the row of each of its words: p_k is
 * theta_dk f_k, S the sum of all p_k, c the center, and u = weight * count * scale. Tables are
 * integers from 0 to 32767: theta and f relative to the largest of a row, c in units of 2^-15. So
 * are p_k, rounded: S is their exact sum. With A = u 2^15 / S (`times_p`) and U = u, rounded
 * (`times_c`), the integer of the cell is
 *
 *     t_k = round(p_k A / 2^15) - round(c_k U / 2^15).
 *
 * Where A is small, 2^e A and p_k / 2^e stand for A and p_k (`n_bits` is e). The integers of a unit's documents are
 * added in each cell before they are squared.
 *
 * `measure` finds S and the length of each unit, from floats. `add` adds the integers, and their
 * exact squares to those of the unit. It adds the same integers each time, so that those of a unit
 * whose squares exceed the bound can be taken out.
 *
 * Rows are cut into chunks of 256 topics or fewer, which fit into registers. Tables are stored
 * chunk by chunk: all rows of the first one, then those of the second.
 *
 * The definition is `sum_topics` in tests/twins.py, the proof of the bounds in
 * docs/proofs_document.md.
 */
#ifndef DPLDA_CONTRIBUTIONS_H
#define DPLDA_CONTRIBUTIONS_H

/* Topics of the chunk that begins when n are left, n a multiple of 32. */
DPLDA_INLINE ptrdiff_t dplda_chunk(ptrdiff_t n) {
    return n >= 256 ? 256 : n >= 128 ? 128 : n >= 64 ? 64 : 32;
}

/* A chunk of the tables, and the documents of a word. */
typedef struct {
    const int16_t *theta;  /* (n_docs, width) */
    const int16_t *factor; /* (width,) of the word */
    const int16_t *center; /* (width,) */
    const int32_t *doc;    /* (n_entries,) in increasing order */
    const int32_t *unit;   /* (n_entries,) of each entry, increasing */
    int several;           /* whether a unit may have several entries */
    const float *count;    /* (n_entries,) */
    float weight;
    ptrdiff_t n_entries;
} dplda_word;

/* Where the integers of a word go. */
typedef struct {
    const float *scale; /* of each unit; 0: left out */
    int shift;          /* an integer stands for 2^shift */
    int sign;           /* 1: added; -1: taken out; 0: neither, for the squares */
    int64_t *total;     /* (n_topics,) */
    ptrdiff_t n_topics; /* at most the width */
    int64_t *square;    /* of each unit, at most DPLDA_LARGEST_SQUARE */
} dplda_sum;

/* Multipliers A and U up to here make integers of 16 bits, |t| <= U + 2: p <= S, so p A / 2^15 is
 * at most u and its roundings, and so is the difference of that and of c U / 2^15. */
#define DPLDA_MOST_16 32760
/* No center of probabilities has a larger sum in a chunk. A word with a larger one adds nothing. */
#define DPLDA_MOST_CENTER 49152

/* Sums of squares of a unit are exact up to this, and stop here in each thread. */
#define DPLDA_LARGEST_SQUARE ((int64_t)1 << 56)

/* Whether entries j and j + 1 belong to one unit. */
DPLDA_INLINE int dplda_goes_on(const dplda_word *word, ptrdiff_t j) {
    return word->several && j + 1 < word->n_entries && word->unit[j] == word->unit[j + 1];
}

DPLDA_INLINE int64_t dplda_rounded(int64_t a, int64_t b) { return (a * b + (1 << 14)) >> 15; }

/* Add the integers of the documents j, ..., end - 1, one unit, of any size.
 *
 * With u < 2^26, A < 2^42, and p < 2^15 no product leaves 64 bits. Entries beyond are left out. */
DPLDA_INLINE void dplda_add_wide(const dplda_word *word, const dplda_sum *to, ptrdiff_t width,
                                 const int32_t *sum, ptrdiff_t entry, ptrdiff_t end) {
    const int32_t unit = word->unit[entry];
    int64_t cell[256] = {0}, square = 0;
    for (; entry < end; entry++) {
        const float size = word->weight * word->count[entry] * to->scale[unit];
        const int16_t *theta = word->theta + word->doc[entry] * width;
        float quotient;
        int32_t bits, n_bits;
        int64_t times_p, times_c;
        if (!(size >= 0 && size < 0x1p26f) || sum[entry] <= 0) {
            continue;
        }
        quotient = size * 32768 / (float)sum[entry];
        memcpy(&bits, &quotient, sizeof bits);
        n_bits = 134 - (bits >> 23);
        n_bits = n_bits < 0 ? 0 : n_bits > 10 ? 10 : n_bits;
        times_p = (int64_t)(quotient * (float)(1 << n_bits) + 0.5f);
        times_c = (int64_t)(size + 0.5f);
        for (ptrdiff_t k = 0; k < width; k++) {
            int64_t p = dplda_rounded(theta[k], word->factor[k] > 0 ? word->factor[k] : 0);
            if (n_bits > 0) {
                p = dplda_rounded(p, 32768 >> n_bits);
            }
            cell[k] += dplda_rounded(p, times_p);
            cell[k] -= dplda_rounded(word->center[k] > 0 ? word->center[k] : 0, times_c);
        }
    }
    for (ptrdiff_t k = 0; k < width; k++) {
        const int64_t length = cell[k] < 0 ? -cell[k] : cell[k];
        square += length < 1 << 24 ? length * length : (int64_t)1 << 48; /* above any bound */
    }
    /* Modulo 2^64: a unit that is too long is taken out again by the same integers. */
    for (ptrdiff_t k = 0; k < to->n_topics; k++) {
        to->total[k] =
            (int64_t)((uint64_t)to->total[k] + ((uint64_t)(to->sign * cell[k]) << to->shift));
    }
    square += to->square[unit];
    to->square[unit] = square < DPLDA_LARGEST_SQUARE ? square : DPLDA_LARGEST_SQUARE;
}
#endif

/* The largest lane, at least 0; half of the lanes at a time, in any order. */
DPLDA_INLINE float NAME(most)(vec a) {
    const vec numbers = v_max(a, v_all(0)); /* 0 for NaN */
#if defined(DPLDA_USE_AVX512)
    return _mm512_reduce_max_ps((__m512)numbers);
#elif defined(DPLDA_USE_AVX2)
    const __m256 eight = _mm256_max_ps(numbers.low, numbers.high);
    const __m128 last = _mm256_extractf128_ps(eight, 1);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), last);
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
#else
    float lane[DPLDA_WIDTH];
    v_store(lane, numbers);
    for (int apart = DPLDA_WIDTH / 2; apart; apart /= 2) {
        for (int j = 0; j < apart; j++) {
            lane[j] = lane[j] > lane[j + apart] ? lane[j] : lane[j + apart];
        }
    }
    return lane[0];
#endif
}

/* The factor that makes the largest of a row of floats `size`; 0 if one is not finite. */
static float NAME(relative)(const float *row, ptrdiff_t padded, float size) {
    vec most = v_all(0), sum = most;
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec x = v_load(row + k);
        most = v_max(x, most), sum = v_add(sum, v_mul(x, v_all(0)));
    }
    const float largest = NAME(most)(most);
    return v_sum(sum) == 0 && largest >= 0x1p-100f ? size / largest : 0;
}

/* Topics k, ..., k + 15 of a row times the factor, rounded, from 0 to 32767. */
DPLDA_INLINE veci NAME(narrow16)(const float *row, ptrdiff_t k, ptrdiff_t padded, vec factor) {
    if (k >= padded) {
        return vi_all(0);
    }
    const vec x = v_max(v_mul(v_load(row + k), factor), v_all(0));
    return v_truncate(v_add(v_min(x, v_all(32767)), v_all(0.5f)));
}

/* A chunk of a row in 16 bits, from topic k on; the row has `padded` floats. */
static void NAME(narrow)(const float *row, ptrdiff_t k, ptrdiff_t padded, float factor,
                         ptrdiff_t width, int16_t *to) {
    for (ptrdiff_t i = 0; i < width; i += 2 * DPLDA_WIDTH) {
        const veci first = NAME(narrow16)(row, k + i, padded, v_all(factor));
        const veci last = NAME(narrow16)(row, k + i + DPLDA_WIDTH, padded, v_all(factor));
        vs_store(to + i, vs_pack(first, last));
    }
}

/* A row in bytes, padded to 32 topics. */
static void NAME(narrow_bytes)(const float *row, ptrdiff_t padded, uint8_t *to) {
    const vec factor = v_all(NAME(relative)(row, padded, 255));
    for (ptrdiff_t k = 0; k < padded; k += 2 * DPLDA_WIDTH) {
        int32_t x[32];
        vi_store(x, NAME(narrow16)(row, k, padded, factor));
        vi_store(x + 16, NAME(narrow16)(row, k + 16, padded, factor));
        for (int j = 0; j < 32; j++) {
            to[k + j] = (uint8_t)x[j];
        }
    }
}

/* A chunk of the factor and of the center of a word, n vectors; 0 if the center is none. */
DPLDA_INLINE int NAME(load_tables)(int n, const dplda_word *word, vs *factor, vs *center) {
    veci sum = vi_all(0);
    for (int i = 0; i < n; i++) {
        factor[i] = vs_positive(vs_load(word->factor + 32 * i));
        center[i] = vs_positive(vs_load(word->center + 32 * i));
        sum = vi_add_products(sum, center[i], vs_all(1));
    }
    return vi_sum(sum) <= DPLDA_MOST_CENTER;
}

/* Ask for the topics of the entries that follow a few later: their documents are spread over more
 * memory than a cache holds. */
DPLDA_INLINE void NAME(fetch)(const int n_vectors, const dplda_word *word, ptrdiff_t entry) {
    for (ptrdiff_t later = entry + 8; later < entry + 12; later++) {
        const ptrdiff_t doc = word->doc[later < word->n_entries ? later : 0];
        for (int k = 0; k < n_vectors; k++) {
            DPLDA_PREFETCH(word->theta + (doc * n_vectors + k) * 32);
        }
    }
}

/* S, sums of (p / 8)^2 / 16 and of p c / 8 of a word's entries, in n vectors; added unless first. */
DPLDA_INLINE void NAME(measure)(const int n_vectors, const dplda_word *word, int first,
                                int32_t *sum, float *squares, float *products) {
    const ptrdiff_t n_entries = word->n_entries;
    vs factor[8], center[8];
    if (!NAME(load_tables)(n_vectors, word, factor, center)) {
        for (ptrdiff_t entry = 0; entry < n_entries; entry++) {
            sum[entry] = INT32_MIN; /* and below 1 whatever at most 2^16 topics of others add */
            squares[entry] = products[entry] = 0;
        }
        return;
    }
    for (ptrdiff_t entry = 0; entry < n_entries; entry += 16) {
        const int n_together = n_entries - entry < 16 ? (int)(n_entries - entry) : 16;
        int32_t found[3][16] = {{0}};
        for (int four = 0; four < n_together; four += 4) {
            veci of_p[4], of_squares[4], of_products[4];
            NAME(fetch)(n_vectors, word, entry + four);
            for (int i = 0; i < 4; i++) {
                const int32_t doc = word->doc[entry + (four + i < n_together ? four + i : 0)];
                const int16_t *theta = word->theta + (ptrdiff_t)doc * 32 * n_vectors;
                of_p[i] = of_squares[i] = of_products[i] = vi_all(0);
                for (int k = 0; k < n_vectors; k++) {
                    const vs p = vs_mul(vs_load(theta + 32 * k), factor[k]);
                    const vs eighth = vs_mul(p, vs_all(4096));
                    of_p[i] = vi_add_products(of_p[i], p, vs_all(1));
                    of_squares[i] = vi_add_products(of_squares[i], eighth, eighth);
                    of_products[i] = vi_add_products(of_products[i], eighth, center[k]);
                }
                of_squares[i] = vi_shift_right(of_squares[i], 4);
            }
            vi_sums4(of_p, found[0] + four);
            vi_sums4(of_squares, found[1] + four), vi_sums4(of_products, found[2] + four);
        }
        if (n_together == 16 && first) {
            vi_store(sum + entry, vi_load(found[0]));
            v_store(squares + entry, v_float(vi_load(found[1])));
            v_store(products + entry, v_float(vi_load(found[2])));
            continue;
        }
        for (int i = 0; i < n_together; i++) {
            sum[entry + i] = found[0][i] + (first ? 0 : sum[entry + i]);
            squares[entry + i] = (float)found[1][i] + (first ? 0 : squares[entry + i]);
            products[entry + i] = (float)found[2][i] + (first ? 0 : products[entry + i]);
        }
    }
}

static void NAME(measure_word)(const dplda_word *word, ptrdiff_t width, int first, int32_t *sum,
                               float *squares, float *products) {
    switch (width) {
    case 32: NAME(measure)(1, word, first, sum, squares, products); break;
    case 64: NAME(measure)(2, word, first, sum, squares, products); break;
    case 128: NAME(measure)(4, word, first, sum, squares, products); break;
    default: NAME(measure)(8, word, first, sum, squares, products);
    }
}

/* The squared length of the center of a word, in units of 2^-30: a chunk of it. */
static float NAME(center_square)(const int16_t *center, ptrdiff_t width) {
    vec sum = v_all(0);
    for (ptrdiff_t k = 0; k < width; k += 32) {
        const vs c = vs_positive(vs_load(center + k));
        const vec first = v_float(vi_first(c)), last = v_float(vi_last(c));
        sum = v_add(sum, v_add(v_mul(first, first), v_mul(last, last)));
    }
    return v_sum(sum);
}

/* The first n of 16 numbers, at most 16, and zeros. */
DPLDA_INLINE vec NAME(floats)(const float *from, int n) {
    float few[16] = {0};
    if (n == 16) {
        return v_load(from);
    }
    memcpy(few, from, n * sizeof *few);
    return v_load(few);
}
DPLDA_INLINE veci NAME(integers)(const int32_t *from, int n) {
    int32_t few[16] = {0};
    if (n == 16) {
        return vi_load(from);
    }
    memcpy(few, from, n * sizeof *few);
    return vi_load(few);
}

/* Add the squared lengths of a word's entries to those of units; of several documents of a unit, a
 * bound. center: the squared length of the center. */
static void NAME(add_lengths)(const dplda_word *word, float center, const int32_t *sum,
                              const float *squares, const float *products, double *length) {
    const ptrdiff_t n_entries = word->n_entries;
    double of_unit = 0; /* root of it */
    for (ptrdiff_t entry = 0; entry < n_entries; entry += 16) {
        const int n_together = n_entries - entry < 16 ? (int)(n_entries - entry) : 16;
        float square[16];
        const vec s = v_float(NAME(integers)(sum + entry, n_together));
        const vec inverse = v_div(v_all(1), v_max(s, v_all(1)));
        const vec Q = NAME(floats)(squares + entry, n_together);
        const vec R = NAME(floats)(products + entry, n_together);
        const vec r = v_mul(v_mul(v_mul(Q, v_all(1024)), inverse), inverse);
        const vec both = v_mul(v_mul(R, v_all(0x1p-11f)), inverse);
        const vec cells = v_max(v_add(v_sub(r, both), v_all(center)), v_all(0));
        const vec size = v_mul(v_all(word->weight), NAME(floats)(word->count + entry, n_together));
        v_store(square, v_mul(v_mul(size, size), v_above(s, v_all(0), cells)));
        for (int i = 0; i < n_together && !word->several; i++) {
            length[word->unit[entry + i]] += square[i];
        }
        for (int i = 0; i < n_together && word->several; i++) {
            double *of = length + word->unit[entry + i];
            if (of_unit != 0 || dplda_goes_on(word, entry + i)) {
                of_unit += sqrt(square[i]);
                square[i] = 0;
            }
            if (of_unit != 0 && !dplda_goes_on(word, entry + i)) {
                *of += of_unit * of_unit, of_unit = 0;
            }
            *of += square[i];
        }
    }
}

/* Multipliers A 2^e, U and e of 16 entries, twice each; whether an entry is not one of 16 bits, or
 * not all of its unit; whether some are, or have e > 0. Entries from n_together on get 0. */
DPLDA_INLINE int NAME(multipliers)(const dplda_word *word, const float *scale, const int32_t *sum,
                                   ptrdiff_t entry, int n_together, int32_t *times_p,
                                   int32_t *times_c, int32_t *n_bits, float *is_wide) {
    const int32_t *of = word->unit + entry;
    float of_unit[16] = {0};
    for (int i = 0; i < n_together; i++) {
        of_unit[i] = scale[of[i]];
    }
    const vec counts = NAME(floats)(word->count + entry, n_together);
    const vec unit = v_mul(v_mul(v_all(word->weight), counts), v_load(of_unit));
    const vec of_p_floats = v_float(NAME(integers)(sum + entry, n_together));
    const vec bounded = v_min(unit, v_all(0x1p26f));
    const vec sizes = v_max(v_above(of_p_floats, v_all(0), bounded), v_all(0));
    const vec quotient = v_div(v_mul(sizes, v_all(32768)), v_max(of_p_floats, v_all(1)));
    vec exponent = v_float(vi_sub(vi_all(134), vi_shift_right(v_as_int(quotient), 23)));
    exponent = v_min(v_max(exponent, v_all(0)), v_all(10));
    const veci shift = v_truncate(exponent);
    const vec power = v_as_float(vi_shift_left(vi_add(shift, vi_all(127)), 23));
    const vec scaled = v_mul(quotient, power), most = v_all(DPLDA_MOST_16);
    const veci of_a = v_truncate(v_add(v_min(scaled, most), v_all(0.5f)));
    const veci of_u = v_truncate(v_add(v_min(sizes, most), v_all(0.5f)));
    const vec wide = v_above(v_max(scaled, sizes), most, v_all(1));
    vi_store(times_p, vi_add(of_a, vi_shift_left(of_a, 16)));
    vi_store(times_c, vi_add(of_u, vi_shift_left(of_u, 16)));
    vi_store(n_bits, shift), v_store(is_wide, wide);
    int any = v_sum(v_add(wide, v_above(sizes, v_all(0), exponent))) > 0;
    for (int i = 0; word->several && i < n_together; i++) {
        const int again = dplda_goes_on(word, entry + i) || (i > 0 && of[i] == of[i - 1]);
        is_wide[i] += again, any |= again;
    }
    return any;
}

/* held += the integers of an entry, in n vectors: those of even topics, then of odd ones; the lanes of
 * their squares. */
DPLDA_INLINE veci NAME(add_entry)(const int n, const int16_t *theta, const vs *factor,
                                  const vs *center, int32_t times_p, int32_t times_c,
                                  int32_t n_bits, veci *held) {
    const vs a = vs_pairs(times_p), u = vs_pairs(times_c);
    const vs part = vs_all((int16_t)(32767 >> n_bits) + (n_bits > 0));
    veci square = vi_all(0);
    for (int k = 0; k < n; k++) {
        vs p = vs_mul(vs_load(theta + 32 * k), factor[k]);
        if (n_bits) {
            p = vs_mul(p, part);
        }
        const vs t = vs_sub(vs_mul(p, a), vs_mul(center[k], u));
        square = vi_add_products(square, t, t); /* all of a chunk: below 2^32 */
        held[2 * k] = vi_add_products(held[2 * k], t, vs_pairs(1));
        held[2 * k + 1] = vi_add(held[2 * k + 1], vi_odd(t));
    }
    return square;
}

/* Move integers of 32 bits to the total. */
DPLDA_INLINE void NAME(write)(const int n, const dplda_sum *to, veci *held) {
    const ptrdiff_t n_topics = to->n_topics;
    const int64_t unit = (int64_t)to->sign * ((int64_t)1 << to->shift);
    int64_t *total = to->total;
    int32_t part[32]; /* those of even topics, then of odd ones */
    for (int k = 0; k < n; k++) {
        vi_store(part, held[2 * k]), vi_store(part + 16, held[2 * k + 1]);
        held[2 * k] = held[2 * k + 1] = vi_all(0);
        for (ptrdiff_t j = 0; j < 32 && 32 * k + j < n_topics; j++) {
            total[32 * k + j] += unit * part[16 * (j % 2) + j / 2];
        }
    }
}

/* Add the integers of a word's entries. */
DPLDA_INLINE void NAME(add)(const int n_vectors, const dplda_word *word, const dplda_sum *to,
                            const int32_t *sum) {
    const ptrdiff_t n_entries = word->n_entries;
    const int16_t *theta = word->theta;
    const int32_t *doc = word->doc, *unit = word->unit;
    int64_t *of_units = to->square;
    vs factor[8], center[8];
    veci held[16];
    int32_t n_held = 0;
    if (!NAME(load_tables)(n_vectors, word, factor, center)) {
        return;
    }
    for (int k = 0; k < 2 * n_vectors; k++) {
        held[k] = vi_all(0);
    }
    for (ptrdiff_t entry = 0, next; entry < n_entries; entry = next) {
        const int n_together = n_entries - entry < 16 ? (int)(n_entries - entry) : 16;
        int32_t times_p[16], times_c[16], n_bits[16];
        float is_wide[16];
        const int any = NAME(multipliers)(word, to->scale, sum, entry, n_together, times_p, times_c,
                                          n_bits, is_wide);
        next = entry + n_together;
        for (int first = 0; first < n_together; first += 4) {
            veci lanes[4];
            uint32_t square[4];
            NAME(fetch)(n_vectors, word, entry + first);
            for (int i = 0; i < 4; i++) {
                const int one = first + i;
                const ptrdiff_t of = doc[entry + (one < n_together ? one : 0)];
                const int16_t *row = theta + of * 32 * n_vectors;
                if (!any) { /* for itself: the loop of add_entry asks nothing */
                    lanes[i] = NAME(add_entry)(n_vectors, row, factor, center, times_p[one],
                                               times_c[one], 0, held);
                } else if (is_wide[one] == 0) {
                    lanes[i] = NAME(add_entry)(n_vectors, row, factor, center, times_p[one],
                                               times_c[one], n_bits[one], held);
                } else {
                    lanes[i] = vi_all(0);
                }
            }
            vi_sums4(lanes, (int32_t *)square);
            for (int one = first; one < first + 4 && one < n_together; one++) {
                of_units[unit[entry + one]] += square[one - first];
            }
        }
        for (int first = 0; any && first < n_together; first = (int)(next - entry)) {
            next = entry + first + 1;
            if (is_wide[first] > 0) {
                while (dplda_goes_on(word, next - 1)) {
                    next++;
                }
                dplda_add_wide(word, to, 32 * n_vectors, sum, entry + first, next);
            }
        }
        n_held += 16 * 32767; /* |t| <= U + 2 in each entry, which is less than 32767 */
        if (n_held > INT32_MAX - 16 * 32767) {
            NAME(write)(n_vectors, to, held);
            n_held = 0;
        }
    }
    NAME(write)(n_vectors, to, held);
}

static void NAME(add_word)(const dplda_word *word, const dplda_sum *to, ptrdiff_t width,
                           const int32_t *sum) {
    switch (width) {
    case 32: NAME(add)(1, word, to, sum); break;
    case 64: NAME(add)(2, word, to, sum); break;
    case 128: NAME(add)(4, word, to, sum); break;
    default: NAME(add)(8, word, to, sum);
    }
}
