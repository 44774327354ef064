/* Contributions of units of one document, word by word; in _variational.h.
 *
 * A document contributes s x, x = share theta f - c, to the row of each of its words, for the row f
 * of the factor, c of the center and s = weight * count; share theta f sums to 1. A first pass over
 * the words finds the shares and the squared length of each document. A second one rounds
 * x * (s * scale) toward zero and adds the integers, and their squares to those of the document. The
 * same pass, with the sign -1, takes out a document whose squares exceed the bound.
 *
 * Both call `cells`, and thus round the same floats. Words are independent of each other but for the
 * sums of squares. The row of a word is added in int32: an integer is at most LARGEST(radius), since
 * |s x| <= length (1 + 2^-22) and scale <= radius / length (1 + 2^-24).
 */
#ifndef DPLDA_CONTRIBUTIONS_H
#define DPLDA_CONTRIBUTIONS_H
#include <float.h>
#define DPLDA_LARGEST(radius) ((radius) + ((radius) >> 20) + 1)

/* What the documents of a word need; a tile of it in the order of the documents. */
typedef struct {
    ptrdiff_t padded;
    const float *theta;  /* (n_docs, padded) */
    const float *factor; /* (padded,) */
    const float *center; /* (padded,) */
} dplda_word;
#endif

DPLDA_INLINE vec NAME(cells)(vec theta, vec factor, vec center, vec share) {
    return v_sub(v_mul(v_mul(theta, factor), share), center);
}

/* Squared lengths of the cells of four documents, lane by lane. */
DPLDA_INLINE void NAME(lengths)(const dplda_word *word, ptrdiff_t padded, const float *const *row,
                                const float *share, vec *square) {
    vec sum[4], a[4];
    for (int i = 0; i < 4; i++) {
        sum[i] = v_all(0), a[i] = v_all(share[i]);
    }
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec f = v_load(word->factor + k), c = v_load(word->center + k);
        for (int i = 0; i < 4; i++) {
            const vec x = NAME(cells)(v_load(row[i] + k), f, c, a[i]);
            sum[i] = v_add(sum[i], v_mul(x, x));
        }
    }
    memcpy(square, sum, sizeof sum);
}

/* `measure_word` of n <= 16 documents. */
DPLDA_INLINE void NAME(measure_tile)(const dplda_word *word, ptrdiff_t padded, const int32_t *doc,
                                     const float *count, float weight, ptrdiff_t n, float *shares,
                                     double *square) {
    const float *row[DPLDA_WIDTH];
    float share[DPLDA_WIDTH], length[DPLDA_WIDTH];
    double added[DPLDA_WIDTH];
    vec sum[DPLDA_WIDTH], whole;
    for (ptrdiff_t i = 0; i < DPLDA_WIDTH; i++) {
        row[i] = word->theta + doc[i < n ? i : 0] * padded;
    }
    for (ptrdiff_t i = 0; i < DPLDA_WIDTH; i += 4) {
        if (i < n) {
            NAME(dots)(word->factor, row + i, padded, sum + i);
        } else {
            sum[i] = sum[i + 1] = sum[i + 2] = sum[i + 3] = v_all(0);
        }
    }
    whole = v_sums(sum);
    v_store(share, v_above(whole, v_all(0), v_div(v_all(1), whole)));
    for (ptrdiff_t i = 0; i < n; i += 4) {
        NAME(lengths)(word, padded, row + i, share + i, sum + i);
    }
    v_store(length, v_sums(sum));
    memcpy(shares, share, n * sizeof *share);
    for (ptrdiff_t i = 0; i < n; i++) {
        const double s = (float)(weight * count[i]); /* rounded as in add_word */
        /* FLT_MIN is more than a square loses that is no normal float: each may, where the processor
         * flushes such floats to zero */
        added[i] = s * s * ((double)length[i] + (double)padded * FLT_MIN);
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        square[doc[i]] += added[i];
    }
}

/* Shares of a word's documents, and their squared lengths, added to `square` (n_docs,). */
DPLDA_INLINE void NAME(measure_documents)(const dplda_word *word, ptrdiff_t padded,
                                          const int32_t *doc, const float *count, float weight,
                                          ptrdiff_t n, float *shares, double *square) {
    ptrdiff_t j = 0;
    for (; j + DPLDA_WIDTH <= n; j += DPLDA_WIDTH) {
        NAME(measure_tile)(word, padded, doc + j, count + j, weight, DPLDA_WIDTH, shares + j, square);
    }
    if (j < n) {
        NAME(measure_tile)(word, padded, doc + j, count + j, weight, n - j, shares + j, square);
    }
}

static void NAME(measure_word)(const dplda_word *word, const int32_t *doc, const float *count,
                               float weight, ptrdiff_t n, float *shares, double *square) {
    if (word->padded == 2 * DPLDA_WIDTH) { /* compiled for this number of topics */
        NAME(measure_documents)(word, 2 * DPLDA_WIDTH, doc, count, weight, n, shares, square);
    } else {
        NAME(measure_documents)(word, word->padded, doc, count, weight, n, shares, square);
    }
}

/* Add the integers of `n_docs` documents, 1 or 4, to `part`; their squares to `square`. */
DPLDA_INLINE void NAME(add_integers)(const dplda_word *word, ptrdiff_t padded, int n_docs,
                                     const int32_t *doc, const float *share, const float *scale,
                                     int32_t *part, int64_t *square) {
    const float *row[4];
    int64_t squares[4];
    vec a[4], unit[4];
    vw sum[4];
    memset(sum, 0, sizeof sum);
    for (int i = 0; i < n_docs; i++) {
        row[i] = word->theta + doc[i] * padded;
        a[i] = v_all(share[i]), unit[i] = v_all(scale[i]);
    }
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec f = v_load(word->factor + k), c = v_load(word->center + k);
        veci total = vi_load(part + k);
        for (int i = 0; i < n_docs; i++) {
            const vec x = NAME(cells)(v_load(row[i] + k), f, c, a[i]);
            const veci integer = v_truncate(v_mul(x, unit[i]));
            sum[i] = vw_add_squares(sum[i], integer);
            total = vi_add(total, integer);
        }
        vi_store(part + k, total);
    }
    vw_sums(sum, n_docs, squares);
    for (int i = 0; i < n_docs; i++) {
        square[doc[i]] += squares[i];
    }
}

DPLDA_INLINE void NAME(flush)(int32_t *part, ptrdiff_t n_components, int sign, int64_t *total) {
    for (ptrdiff_t k = 0; k < n_components; k++) {
        total[k] += sign * (int64_t)part[k];
        part[k] = 0;
    }
}

/* `add_word`, four documents at a time if there is `room` for so many before a flush. */
DPLDA_INLINE void NAME(add_documents)(const dplda_word *word, ptrdiff_t padded, const int32_t *doc,
                                      const float *count, float weight, ptrdiff_t n,
                                      const float *shares, const float *scale, int64_t room,
                                      int sign, ptrdiff_t n_components, int64_t *total,
                                      int32_t *part, int64_t *square) {
    const int most = room < 4 ? 1 : 4;
    int32_t docs[4];
    float share[4], unit[4];
    int n_taken = 0;
    int64_t n_added = 0;
    for (ptrdiff_t j = 0; j < n; j++) {
        if (scale[doc[j]] != 0) {
            docs[n_taken] = doc[j], share[n_taken] = shares[j];
            unit[n_taken] = weight * count[j] * scale[doc[j]];
            n_taken++;
        }
        if (n_taken == most) {
            if (n_added + most > room) {
                NAME(flush)(part, n_components, sign, total);
                n_added = 0;
            }
            if (most == 4) {
                NAME(add_integers)(word, padded, 4, docs, share, unit, part, square);
            } else {
                NAME(add_integers)(word, padded, 1, docs, share, unit, part, square);
            }
            n_added += most;
            n_taken = 0;
        }
    }
    if (n_added + n_taken > room) {
        NAME(flush)(part, n_components, sign, total);
    }
    for (int i = 0; i < n_taken; i++) {
        NAME(add_integers)(word, padded, 1, docs + i, share + i, unit + i, part, square);
    }
    NAME(flush)(part, n_components, sign, total);
}

/* total += sign * the row of a word, (n_components,); documents of scale 0 are left out.
 *
 * part: (padded,), 0 before and after; square: (n_docs,) sums of the squared integers. */
static void NAME(add_word)(const dplda_word *word, const int32_t *doc, const float *count,
                           float weight, ptrdiff_t n, const float *shares, const float *scale,
                           int64_t radius, int sign, ptrdiff_t n_components, int64_t *total,
                           int32_t *part, int64_t *square) {
    const int64_t room = INT32_MAX / DPLDA_LARGEST(radius); /* documents, at least 1 */
    if (word->padded == 2 * DPLDA_WIDTH) { /* compiled for this number of topics */
        NAME(add_documents)(word, 2 * DPLDA_WIDTH, doc, count, weight, n, shares, scale, room, sign,
                            n_components, total, part, square);
    } else {
        NAME(add_documents)(word, word->padded, doc, count, weight, n, shares, scale, room, sign,
                            n_components, total, part, square);
    }
}
