/* Contributions of units of one document, word by word; in _variational.h.
 *
 * A document contributes x = s (share theta f - c) to the row of each of its words, for the row f of
 * the factor, c of the center and s = weight * count, so that share sums to 1. A first pass over the
 * words finds the shares and the squared length of each document. A second one rounds x * scale
 * toward zero and adds the integers, and their squares to those of the document. The same pass, with
 * the sign -1, takes out a document whose squares exceed the bound.
 *
 * Both call `cells`, and thus round the same floats. Words are independent of each other but for the
 * sums of squares. The row of a word is added in int32: an integer is at most LARGEST(radius), since
 * |x| <= length (1 + 2^-23) and scale <= radius / length (1 + 2^-24).
 */
#ifndef DPLDA_CONTRIBUTIONS_H
#define DPLDA_CONTRIBUTIONS_H
#define DPLDA_LARGEST(radius) ((radius) + ((radius) >> 20) + 1)

/* What the documents of a word need; a tile of it in the order of the documents. */
typedef struct {
    ptrdiff_t padded;
    const float *theta;  /* (n_docs, padded) */
    const float *factor; /* (padded,) */
    const float *center; /* (padded,) */
} dplda_word;
#endif

DPLDA_INLINE vec NAME(cells)(vec theta, vec factor, vec center, vec share, vec s) {
    return v_sub(v_mul(v_mul(theta, factor), share), v_mul(s, center));
}

/* The quotient of s and the sum of theta * factor, or 0. */
DPLDA_INLINE float NAME(share)(float s, float sum) { return sum > 0 ? s / sum : 0; }

/* Squared lengths of the cells of four documents, lane by lane. */
DPLDA_INLINE void NAME(lengths)(const dplda_word *word, const float *const *row,
                                const float *share, const float *s, vec *square) {
    vec sum[4], a[4], b[4];
    for (int i = 0; i < 4; i++) {
        sum[i] = v_all(0), a[i] = v_all(share[i]), b[i] = v_all(s[i]);
    }
    for (ptrdiff_t k = 0; k < word->padded; k += DPLDA_WIDTH) {
        const vec f = v_load(word->factor + k), c = v_load(word->center + k);
        for (int i = 0; i < 4; i++) {
            const vec x = NAME(cells)(v_load(row[i] + k), f, c, a[i], b[i]);
            sum[i] = v_add(sum[i], v_mul(x, x));
        }
    }
    memcpy(square, sum, sizeof sum);
}

/* Shares of a word's documents, and their squared lengths, added to `square` (n_docs,). */
static void NAME(measure_word)(const dplda_word *word, const int32_t *doc, const float *count,
                               float weight, ptrdiff_t n, float *shares, double *square) {
    for (ptrdiff_t j = 0; j < n; j += DPLDA_WIDTH) {
        const ptrdiff_t left = n - j < DPLDA_WIDTH ? n - j : DPLDA_WIDTH;
        const float *row[DPLDA_WIDTH];
        float s[DPLDA_WIDTH], share[DPLDA_WIDTH], length[DPLDA_WIDTH];
        vec sum[DPLDA_WIDTH];
        for (ptrdiff_t i = 0; i < DPLDA_WIDTH; i++) {
            row[i] = word->theta + doc[j + (i < left ? i : 0)] * word->padded;
            s[i] = i < left ? weight * count[j + i] : 0;
            sum[i] = v_all(0);
        }
        for (ptrdiff_t i = 0; i < left; i += 4) {
            NAME(dots)(word->factor, row + i, word->padded, sum + i);
        }
        v_store(share, v_sums(sum));
        for (ptrdiff_t i = 0; i < DPLDA_WIDTH; i++) {
            share[i] = NAME(share)(s[i], share[i]);
        }
        for (ptrdiff_t i = 0; i < left; i += 4) {
            NAME(lengths)(word, row + i, share + i, s + i, sum + i);
        }
        v_store(length, v_sums(sum));
        memcpy(shares + j, share, left * sizeof *share);
        for (ptrdiff_t i = 0; i < left; i++) {
            square[doc[j + i]] += length[i];
        }
    }
}

/* Add the integers of `n_docs` documents, 1 or 4, to `part`; their squares to `square`. */
DPLDA_INLINE void NAME(add_integers)(const dplda_word *word, int n_docs, const int32_t *doc,
                                     const float *share, const float *s, const float *scale,
                                     int32_t *part, int64_t *square) {
    const float *row[4];
    vec a[4], b[4], unit[4];
    vw sum[4];
    memset(sum, 0, sizeof sum);
    for (int i = 0; i < n_docs; i++) {
        row[i] = word->theta + doc[i] * word->padded;
        a[i] = v_all(share[i]), b[i] = v_all(s[i]), unit[i] = v_all(scale[i]);
    }
    for (ptrdiff_t k = 0; k < word->padded; k += DPLDA_WIDTH) {
        const vec f = v_load(word->factor + k), c = v_load(word->center + k);
        veci total = vi_load(part + k);
        for (int i = 0; i < n_docs; i++) {
            const vec x = NAME(cells)(v_load(row[i] + k), f, c, a[i], b[i]);
            const veci integer = v_truncate(v_mul(x, unit[i]));
            sum[i] = vw_add_squares(sum[i], integer);
            total = vi_add(total, integer);
        }
        vi_store(part + k, total);
    }
    for (int i = 0; i < n_docs; i++) {
        square[doc[i]] += vw_sum(sum[i]);
    }
}

DPLDA_INLINE void NAME(flush)(int32_t *part, ptrdiff_t n_components, int sign, int64_t *total) {
    for (ptrdiff_t k = 0; k < n_components; k++) {
        total[k] += sign * (int64_t)part[k];
        part[k] = 0;
    }
}

/* total += sign * the row of a word, (n_components,); documents of scale 0 are left out.
 *
 * part: (padded,), 0 before and after; square: (n_docs,) sums of the squared integers. */
static void NAME(add_word)(const dplda_word *word, const int32_t *doc, const float *count,
                           float weight, ptrdiff_t n, const float *shares, const float *scale,
                           int64_t radius, int sign, ptrdiff_t n_components, int64_t *total,
                           int32_t *part, int64_t *square) {
    const int64_t room = INT32_MAX / DPLDA_LARGEST(radius); /* documents, at least 1 */
    const int most = room < 4 ? 1 : 4;
    int32_t docs[4];
    float share[4], s[4], unit[4];
    int n_taken = 0;
    int64_t n_added = 0;
    for (ptrdiff_t j = 0; j < n; j++) {
        if (scale[doc[j]] != 0) {
            docs[n_taken] = doc[j], share[n_taken] = shares[j];
            s[n_taken] = weight * count[j], unit[n_taken] = scale[doc[j]];
            n_taken++;
        }
        if (n_taken == most) {
            if (n_added + most > room) {
                NAME(flush)(part, n_components, sign, total);
                n_added = 0;
            }
            if (most == 4) {
                NAME(add_integers)(word, 4, docs, share, s, unit, part, square);
            } else {
                NAME(add_integers)(word, 1, docs, share, s, unit, part, square);
            }
            n_added += most;
            n_taken = 0;
        }
    }
    if (n_added + n_taken > room) {
        NAME(flush)(part, n_components, sign, total);
    }
    for (int i = 0; i < n_taken; i++) {
        NAME(add_integers)(word, 1, docs + i, share + i, s + i, unit + i, part, square);
    }
    NAME(flush)(part, n_components, sign, total);
}
