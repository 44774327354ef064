/* Contributions of units, word by word, in 16-bit integers; in _variational.h.
 *
 * A document d contributes u (p_k / S - c_k) to cell k of the row of each of its words: p_k is
 * theta_dk f_k, S the sum of all p_k, c the center, and u = weight * count * scale. Tables are
 * integers from 0 to 32767: theta and f relative to the largest of a row, c in units of 2^-15. So
 * are p_k, rounded: S is their exact sum. With A = u 2^15 / S, the integer of the cell is
 *
 *     t_k = round(p_k A / 2^15) - round(c_k u / 2^15).
 *
 * Where A is small, 2^e A and p_k / 2^e stand for A and p_k. The integers of a unit's documents are
 * added in each cell before they are squared.
 *
 * `measure` finds S and the length of each unit, from floats. `add` adds the integers, and their
 * exact squares to those of the unit. It adds the same integers each time, so that those of a unit
 * whose squares exceed the bound can be taken out.
 *
 * Rows are cut into chunks of 256 topics or fewer, which fit into registers. Tables are stored
 * chunk by chunk: all rows of the first one, then those of the second.
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
    const int32_t *doc;    /* (n,) in increasing order */
    const int32_t *unit;   /* (n,) of each entry, increasing */
    int several;           /* whether a unit may have several entries */
    const float *count;    /* (n,) */
    float weight;
    ptrdiff_t n;
} dplda_word;

/* Where the integers of a word go. */
typedef struct {
    const float *scale; /* of each unit; 0: left out */
    int shift;          /* an integer stands for 2^shift */
    int sign;           /* 1: added; -1: taken out; 0: neither, for the squares */
    int64_t *total;     /* (n_topics,) */
    ptrdiff_t n_topics; /* at most the width */
    int64_t *square;    /* of each unit, exact up to 2^56, and no less beyond */
} dplda_sum;

/* Integers up to here have 16 bits: U + 4 is no less than an integer of the entry. */
#define DPLDA_MOST_16 32760
/* No center of probabilities has a larger sum. */
#define DPLDA_MOST_CENTER 49152

/* Whether entries j and j + 1 belong to one unit. */
DPLDA_INLINE int dplda_goes_on(const dplda_word *word, ptrdiff_t j) {
    return word->several && j + 1 < word->n && word->unit[j] == word->unit[j + 1];
}

DPLDA_INLINE int64_t dplda_rounded(int64_t a, int64_t b) { return (a * b + (1 << 14)) >> 15; }

/* Add the integers of the documents j, ..., end - 1, one unit, of any size.
 *
 * u < 2^26 bounds an integer, A < 2^42 a product. Documents beyond are left out. */
DPLDA_INLINE void dplda_add_wide(const dplda_word *word, const dplda_sum *to, ptrdiff_t width,
                                 const int32_t *sum, ptrdiff_t j, ptrdiff_t end) {
    const int32_t unit = word->unit[j];
    int64_t cell[256] = {0}, square = 0;
    for (; j < end; j++) {
        const float u = word->weight * word->count[j] * to->scale[unit];
        const int16_t *theta = word->theta + word->doc[j] * width;
        float a;
        int32_t bits, e;
        int64_t A, U;
        if (!(u >= 0 && u < 0x1p26f) || sum[j] <= 0) {
            continue;
        }
        a = u * 32768 / (float)sum[j];
        memcpy(&bits, &a, sizeof bits);
        e = 134 - (bits >> 23);
        e = e < 0 ? 0 : e > 10 ? 10 : e;
        A = (int64_t)(a * (float)(1 << e) + 0.5f), U = (int64_t)(u + 0.5f);
        for (ptrdiff_t k = 0; k < width; k++) {
            int64_t p = dplda_rounded(theta[k], word->factor[k] > 0 ? word->factor[k] : 0);
            if (e > 0) {
                p = dplda_rounded(p, 32768 >> e);
            }
            cell[k] += dplda_rounded(p, A);
            cell[k] -= dplda_rounded(word->center[k] > 0 ? word->center[k] : 0, U);
        }
    }
    for (ptrdiff_t k = 0; k < width; k++) {
        const int64_t size = cell[k] < 0 ? -cell[k] : cell[k];
        square += size < 1 << 24 ? size * size : (int64_t)1 << 48; /* above any bound */
    }
    for (ptrdiff_t k = 0; k < to->n_topics; k++) { /* modulo 2^64: taken out again if too long */
        to->total[k] =
            (int64_t)((uint64_t)to->total[k] + ((uint64_t)(to->sign * cell[k]) << to->shift));
    }
    square += to->square[unit];
    to->square[unit] = square < (int64_t)1 << 56 ? square : (int64_t)1 << 56;
}
#endif

/* The largest lane, at least 0. */
DPLDA_INLINE float NAME(most)(vec a) {
    float lane[DPLDA_WIDTH], largest = 0;
    v_store(lane, a);
    for (int j = 0; j < DPLDA_WIDTH; j++) {
        largest = lane[j] > largest ? lane[j] : largest;
    }
    return largest;
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

/* S, sums of (p / 8)^2 / 16 and of p c / 8 of a word's entries, in n vectors; added unless first. */
DPLDA_INLINE void NAME(measure)(const int n, const dplda_word *word, int first, int32_t *sum,
                                float *squares, float *products) {
    const ptrdiff_t n_entries = word->n;
    vs factor[8], center[8];
    if (!NAME(load_tables)(n, word, factor, center)) {
        memset(sum, 0, n_entries * sizeof *sum);
        return;
    }
    for (ptrdiff_t j = 0; j < n_entries; j += 4) {
        const int m = n_entries - j < 4 ? (int)(n_entries - j) : 4;
        int32_t found[12];
        veci s[4], q[4], r[4];
        for (int i = 0; i < 4; i++) {
            const int16_t *theta = word->theta + word->doc[j + (i < m ? i : 0)] * 32 * n;
            s[i] = q[i] = r[i] = vi_all(0);
            for (int k = 0; k < n; k++) {
                const vs p = vs_mul(vs_load(theta + 32 * k), factor[k]);
                const vs eighth = vs_mul(p, vs_all(4096));
                s[i] = vi_add_products(s[i], p, vs_all(1));
                q[i] = vi_add_products(q[i], eighth, eighth);
                r[i] = vi_add_products(r[i], eighth, center[k]);
            }
            q[i] = vi_shift_right(q[i], 4);
        }
        vi_sums4(s, found), vi_sums4(q, found + 4), vi_sums4(r, found + 8);
        if (first) {
            memcpy(sum + j, found, m * sizeof *sum);
            for (int i = 0; i < m; i++) {
                squares[j + i] = (float)found[4 + i], products[j + i] = (float)found[8 + i];
            }
        } else {
            for (int i = 0; i < m; i++) {
                sum[j + i] += found[i];
                squares[j + i] += (float)found[4 + i], products[j + i] += (float)found[8 + i];
            }
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

/* Add the squared lengths of a word's entries to those of units; of several documents of a unit, a
 * bound. center: the squared length of the center. */
static void NAME(add_lengths)(const dplda_word *word, float center, const int32_t *sum,
                              const float *squares, const float *products, double *length) {
    const ptrdiff_t n = word->n;
    double of_unit = 0; /* root of it */
    for (ptrdiff_t j = 0; j < n; j += 16) {
        const int m = n - j < 16 ? (int)(n - j) : 16;
        float count[16] = {0}, Q[16] = {0}, R[16] = {0}, square[16];
        int32_t S[16] = {0};
        memcpy(count, word->count + j, m * sizeof *count), memcpy(S, sum + j, m * sizeof *S);
        memcpy(Q, squares + j, m * sizeof *Q), memcpy(R, products + j, m * sizeof *R);
        const vec s = v_float(vi_load(S)), inverse = v_div(v_all(1), v_max(s, v_all(1)));
        const vec r = v_mul(v_mul(v_mul(v_load(Q), v_all(1024)), inverse), inverse);
        const vec both = v_mul(v_mul(v_load(R), v_all(0x1p-11f)), inverse);
        const vec cells = v_max(v_add(v_sub(r, both), v_all(center)), v_all(0));
        const vec size = v_mul(v_all(word->weight), v_load(count));
        v_store(square, v_mul(v_mul(size, size), v_above(s, v_all(0), cells)));
        for (int i = 0; i < m; i++) {
            double *of = length + word->unit[j + i];
            if (of_unit != 0 || dplda_goes_on(word, j + i)) {
                of_unit += sqrt(square[i]);
                square[i] = 0;
            }
            if (of_unit != 0 && !dplda_goes_on(word, j + i)) {
                *of += of_unit * of_unit, of_unit = 0;
            }
            *of += square[i];
        }
    }
}

/* Multipliers A 2^e, U and e of 16 entries, twice each; whether an entry is not one of 16 bits, or
 * not all of its unit; whether some are, or have e > 0. Entries from m on get 0. */
DPLDA_INLINE int NAME(multipliers)(const dplda_word *word, const float *scale, const int32_t *sum,
                                   ptrdiff_t j, int m, int32_t *A, int32_t *U, int32_t *e,
                                   float *is_wide) {
    const float weight = word->weight, *count = word->count + j;
    const int32_t *of = word->unit + j;
    int32_t S[16] = {0};
    float unit[16] = {0};
    for (int i = 0; i < m; i++) {
        unit[i] = weight * count[i] * scale[of[i]];
    }
    memcpy(S, sum + j, m * sizeof *S);
    const vec s = v_float(vi_load(S));
    const vec u = v_max(v_above(s, v_all(0), v_min(v_load(unit), v_all(0x1p26f))), v_all(0));
    const vec a = v_div(v_mul(u, v_all(32768)), v_max(s, v_all(1)));
    vec exponent = v_float(vi_sub(vi_all(134), vi_shift_right(v_as_int(a), 23)));
    exponent = v_min(v_max(exponent, v_all(0)), v_all(10));
    const veci shift = v_truncate(exponent);
    const vec power = v_as_float(vi_shift_left(vi_add(shift, vi_all(127)), 23));
    const vec scaled = v_mul(a, power), most = v_all(DPLDA_MOST_16);
    const veci of_a = v_truncate(v_add(v_min(scaled, most), v_all(0.5f)));
    const veci of_u = v_truncate(v_add(v_min(u, most), v_all(0.5f)));
    const vec wide = v_above(v_max(scaled, u), most, v_all(1));
    vi_store(A, vi_add(of_a, vi_shift_left(of_a, 16)));
    vi_store(U, vi_add(of_u, vi_shift_left(of_u, 16)));
    vi_store(e, shift), v_store(is_wide, wide);
    int any = v_sum(v_add(wide, v_above(u, v_all(0), exponent))) > 0;
    for (int i = 0; word->several && i < m; i++) {
        const int again = dplda_goes_on(word, j + i) || (i > 0 && of[i] == of[i - 1]);
        is_wide[i] += again, any |= again;
    }
    return any;
}

/* kept += the integers of an entry, in n vectors; the lanes of their squares. */
DPLDA_INLINE veci NAME(add_entry)(const int n, const int16_t *theta, const vs *factor,
                                  const vs *center, int32_t A, int32_t U, int32_t e, vs *kept) {
    const vs a = vs_pairs(A), u = vs_pairs(U), part = vs_all((int16_t)(32767 >> e) + (e > 0));
    veci square = vi_all(0);
    for (int k = 0; k < n; k++) {
        vs p = vs_mul(vs_load(theta + 32 * k), factor[k]);
        if (e) {
            p = vs_mul(p, part);
        }
        const vs t = vs_sub(vs_mul(p, a), vs_mul(center[k], u));
        square = vi_add_products(square, t, t);
        kept[k] = vs_add(kept[k], t);
    }
    return square;
}

/* Move the integers of n vectors to 32 bits. */
DPLDA_INLINE void NAME(flush)(const int n, vs *kept, veci *held) {
    for (int k = 0; k < n; k++) {
        held[2 * k] = vi_add(held[2 * k], vi_first(kept[k]));
        held[2 * k + 1] = vi_add(held[2 * k + 1], vi_last(kept[k]));
        kept[k] = vs_all(0);
    }
}

/* Move them from 32 bits to the total. */
DPLDA_INLINE void NAME(write)(const int n, const dplda_sum *to, veci *held) {
    const ptrdiff_t n_topics = to->n_topics;
    const int64_t unit = (int64_t)to->sign * ((int64_t)1 << to->shift);
    int64_t *total = to->total;
    int32_t cell[256];
    for (int k = 0; k < 2 * n; k++) {
        vi_store(cell + 16 * k, held[k]);
        held[k] = vi_all(0);
    }
    for (ptrdiff_t k = 0; k < n_topics; k++) {
        total[k] += unit * cell[k];
    }
}

/* Add the integers of a word's entries. Sums fit: n_kept and n_held bound them. */
DPLDA_INLINE void NAME(add)(const int n, const dplda_word *word, const dplda_sum *to,
                            const int32_t *sum) {
    const ptrdiff_t n_entries = word->n;
    const int16_t *theta = word->theta;
    const int32_t *doc = word->doc, *unit = word->unit;
    int64_t *of_units = to->square;
    vs factor[8], center[8], kept[8];
    veci held[16];
    int32_t n_kept = 0, n_held = 0;
    if (!NAME(load_tables)(n, word, factor, center)) {
        return;
    }
    for (int k = 0; k < n; k++) {
        kept[k] = vs_all(0), held[2 * k] = held[2 * k + 1] = vi_all(0);
    }
    for (ptrdiff_t j = 0, next; j < n_entries; j = next) {
        const int m = n_entries - j < 16 ? (int)(n_entries - j) : 16;
        int32_t A[16], U[16], e[16];
        float is_wide[16];
        const int any = NAME(multipliers)(word, to->scale, sum, j, m, A, U, e, is_wide);
        next = j + m;
        for (int i = 0; i < m; i += 4) {
            veci lanes[4];
            uint32_t square[4];
            for (int l = i; l < i + 4; l++) {
                const int16_t *row = theta + doc[j + (l < m ? l : 0)] * 32 * n;
                const int32_t most = (U[l] & 0xffff) + 4;
                n_kept += most;
                if (n_kept > 32767) {
                    NAME(flush)(n, kept, held);
                    n_kept = most, n_held += 32767;
                }
                if (!any) {
                    lanes[l - i] = NAME(add_entry)(n, row, factor, center, A[l], U[l], 0, kept);
                } else if (is_wide[l] == 0) {
                    lanes[l - i] = NAME(add_entry)(n, row, factor, center, A[l], U[l], e[l], kept);
                } else {
                    lanes[l - i] = vi_all(0);
                }
            }
            vi_sums4(lanes, (int32_t *)square);
            for (int l = i; l < i + 4 && l < m; l++) {
                of_units[unit[j + l]] += square[l - i];
            }
        }
        for (int i = 0; any && i < m; i = (int)(next - j)) {
            next = j + i + 1;
            if (is_wide[i] > 0) {
                while (dplda_goes_on(word, next - 1)) {
                    next++;
                }
                dplda_add_wide(word, to, 32 * n, sum, j + i, next);
            }
        }
        if (n_held > INT32_MAX - 17 * 32767) {
            NAME(write)(n, to, held);
            n_held = 0;
        }
    }
    NAME(flush)(n, kept, held);
    NAME(write)(n, to, held);
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
