/* Topic weights of a document under a fixed table; in _variational.h.
 *
 * By expectation-maximization, or by the steps of variational Bayes: there exp(E[log theta]) takes
 * the place of theta, the mean, in the shares of words. 16 topics at a time; tables are padded with
 * zeros to a multiple of 16. Every sum has a fixed order: words four at a time, topics in 16 lanes
 * that v_sum adds.
 *
 * The table is one of floats, or one of pairs, which is half as large. A pair holds topics k and
 * k + 16 (k mod 32 < 16): the upper 16 bits of the float of topic k + 16 are its lower 16 bits, and
 * all 32 bits are the float of topic k. So a pair is read by a load and a shift. Both floats are
 * within 2^-8 of what they stand for. Sums of pairs have the order of sums of floats.
 */
#ifndef DPLDA_FOLD_IN_H
#define DPLDA_FOLD_IN_H

/* A document under a table. */
typedef struct {
    ptrdiff_t n; /* different words */
    const int32_t *word;
    const float *count;
    const float *phi; /* (n_words, padded), or (n_words, dplda_pairs(padded)) */
    int in_pairs;
    ptrdiff_t padded;
    const float *prior; /* (padded,) doc_topic_prior, and 0 on the padding */
    float total;        /* all counts and priors */
    int variational;
} dplda_document;

/* Number of pairs that hold the topics of a row. */
DPLDA_INLINE ptrdiff_t dplda_pairs(ptrdiff_t padded) { return (padded + 31) / 32 * 16; }
#endif

/* The floats of topics k + 16, ..., k + 31, from the pairs of topics k, ..., k + 15. */
DPLDA_INLINE vec NAME(second_of)(vec pairs) {
    return v_as_float(vi_shift_left(v_as_int(pairs), 16));
}

/* The pairs of a row of floats that are not negative: (dplda_pairs(padded),). */
static void NAME(pack)(const float *row, ptrdiff_t padded, float *pairs) {
    for (ptrdiff_t k = 0; k < padded; k += 2 * DPLDA_WIDTH, pairs += DPLDA_WIDTH) {
        veci first = v_as_int(v_load(row + k)), second = vi_all(0);
        if (k + DPLDA_WIDTH < padded) {
            second = v_as_int(v_load(row + k + DPLDA_WIDTH));
            second = vi_shift_right(vi_add(second, vi_all(0x8000)), 16);
        }
        /* the nearest float that ends with these bits; 0 where none is near */
        first = vi_shift_right(vi_add(vi_sub(first, second), vi_all(0x8000)), 16);
        first = vi_sub(first, vi_and(first, vi_shift_right(first, 31)));
        v_store(pairs, v_as_float(vi_add(vi_shift_left(first, 16), second)));
    }
}

/* The dot products of `theta` and four rows, lane by lane. */
DPLDA_INLINE void NAME(dots)(const float *theta, const float *const *row, ptrdiff_t padded,
                             vec *sum) {
    const float *r0 = row[0], *r1 = row[1], *r2 = row[2], *r3 = row[3];
    vec s0 = v_all(0), s1 = s0, s2 = s0, s3 = s0;
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec t = v_load(theta + k);
        s0 = v_add(s0, v_mul(t, v_load(r0 + k)));
        s1 = v_add(s1, v_mul(t, v_load(r1 + k)));
        s2 = v_add(s2, v_mul(t, v_load(r2 + k)));
        s3 = v_add(s3, v_mul(t, v_load(r3 + k)));
    }
    sum[0] = s0, sum[1] = s1, sum[2] = s2, sum[3] = s3;
}

/* `dots` of rows of pairs. */
DPLDA_INLINE void NAME(dots_of_pairs)(const float *theta, const float *const *row,
                                      ptrdiff_t padded, vec *sum) {
    const float *r0 = row[0], *r1 = row[1], *r2 = row[2], *r3 = row[3];
    vec s0 = v_all(0), s1 = s0, s2 = s0, s3 = s0;
    for (ptrdiff_t k = 0, i = 0; k < padded; k += 2 * DPLDA_WIDTH, i += DPLDA_WIDTH) {
        const vec p0 = v_load(r0 + i), p1 = v_load(r1 + i), p2 = v_load(r2 + i), p3 = v_load(r3 + i);
        vec t = v_load(theta + k);
        s0 = v_add(s0, v_mul(t, p0));
        s1 = v_add(s1, v_mul(t, p1));
        s2 = v_add(s2, v_mul(t, p2));
        s3 = v_add(s3, v_mul(t, p3));
        if (k + DPLDA_WIDTH < padded) {
            t = v_load(theta + k + DPLDA_WIDTH);
            s0 = v_add(s0, v_mul(t, NAME(second_of)(p0)));
            s1 = v_add(s1, v_mul(t, NAME(second_of)(p1)));
            s2 = v_add(s2, v_mul(t, NAME(second_of)(p2)));
            s3 = v_add(s3, v_mul(t, NAME(second_of)(p3)));
        }
    }
    sum[0] = s0, sum[1] = s1, sum[2] = s2, sum[3] = s3;
}

/* new += q0 r0 + q1 r1 + q2 r2 + q3 r3, for 16 topics of four rows. */
DPLDA_INLINE void NAME(add_topics)(const vec *q, vec r0, vec r1, vec r2, vec r3, float *new_theta) {
    const vec first = v_add(v_mul(q[0], r0), v_mul(q[1], r1));
    const vec second = v_add(v_mul(q[2], r2), v_mul(q[3], r3));
    v_store(new_theta, v_add(v_load(new_theta), v_add(first, second)));
}

/* new += the sum of four rows, times their quotients. */
DPLDA_INLINE void NAME(add_rows)(const float *const *row, const float *quotient, ptrdiff_t padded,
                                 float *new_theta) {
    const float *r0 = row[0], *r1 = row[1], *r2 = row[2], *r3 = row[3];
    const vec q[] = {v_all(quotient[0]), v_all(quotient[1]), v_all(quotient[2]), v_all(quotient[3])};
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        NAME(add_topics)(q, v_load(r0 + k), v_load(r1 + k), v_load(r2 + k), v_load(r3 + k),
                         new_theta + k);
    }
}

/* `add_rows` of rows of pairs. */
DPLDA_INLINE void NAME(add_pairs)(const float *const *row, const float *quotient, ptrdiff_t padded,
                                  float *new_theta) {
    const float *r0 = row[0], *r1 = row[1], *r2 = row[2], *r3 = row[3];
    const vec q[] = {v_all(quotient[0]), v_all(quotient[1]), v_all(quotient[2]), v_all(quotient[3])};
    for (ptrdiff_t k = 0, i = 0; k < padded; k += 2 * DPLDA_WIDTH, i += DPLDA_WIDTH) {
        const vec p0 = v_load(r0 + i), p1 = v_load(r1 + i), p2 = v_load(r2 + i), p3 = v_load(r3 + i);
        NAME(add_topics)(q, p0, p1, p2, p3, new_theta + k);
        if (k + DPLDA_WIDTH < padded) {
            NAME(add_topics)(q, NAME(second_of)(p0), NAME(second_of)(p1), NAME(second_of)(p2),
                             NAME(second_of)(p3), new_theta + k + DPLDA_WIDTH);
        }
    }
}

/* count / share; 0 where it might overflow: all topics nearly exclude the word */
DPLDA_INLINE vec NAME(quotients)(vec count, vec share) {
    const vec least = v_all(1e-28f);
    return v_div(v_above(share, least, count), v_max(share, least));
}

/* The rows of n <= 16 words, from word j on, and their counts over their shares under `weight`. */
DPLDA_INLINE void NAME(read_tile)(const dplda_document *doc, ptrdiff_t j, ptrdiff_t n,
                                  ptrdiff_t padded, int in_pairs, const float *weight,
                                  const float **row, float *quotient) {
    const ptrdiff_t size = in_pairs ? dplda_pairs(padded) : padded;
    float count[DPLDA_WIDTH] = {0};
    vec sum[DPLDA_WIDTH];
    for (ptrdiff_t i = 0; i < DPLDA_WIDTH; i++) {
        row[i] = doc->phi + doc->word[j + (i < n ? i : 0)] * size;
    }
    memcpy(count, doc->count + j, n * sizeof *count);
    for (ptrdiff_t i = 0; i < DPLDA_WIDTH; i += 4) {
        if (i >= n) {
            sum[i] = sum[i + 1] = sum[i + 2] = sum[i + 3] = v_all(0);
        } else if (in_pairs) {
            NAME(dots_of_pairs)(weight, row + i, padded, sum + i);
        } else {
            NAME(dots)(weight, row + i, padded, sum + i);
        }
    }
    v_store(quotient, NAME(quotients)(v_load(count), v_sums(sum)));
}

/* new_theta += the shares of n <= 16 words, from word j on, in each topic, over their weights. */
DPLDA_INLINE void NAME(add_tile)(const dplda_document *doc, ptrdiff_t j, ptrdiff_t n,
                                 ptrdiff_t padded, int in_pairs, const float *weight,
                                 float *new_theta) {
    const float *row[DPLDA_WIDTH];
    float quotient[DPLDA_WIDTH];
    NAME(read_tile)(doc, j, n, padded, in_pairs, weight, row, quotient);
    for (ptrdiff_t i = 0; i < n; i += 4) {
        if (in_pairs) {
            NAME(add_pairs)(row + i, quotient + i, padded, new_theta);
        } else {
            NAME(add_rows)(row + i, quotient + i, padded, new_theta);
        }
    }
}

/* new_theta += the shares of all words in each topic, over their weights. */
DPLDA_INLINE void NAME(add_words)(const dplda_document *doc, ptrdiff_t padded, int in_pairs,
                                  const float *weight, float *new_theta) {
    const ptrdiff_t size = in_pairs ? dplda_pairs(padded) : padded;
    ptrdiff_t j = 0;
    for (; j + DPLDA_WIDTH <= doc->n; j += DPLDA_WIDTH) {
        for (ptrdiff_t i = j + DPLDA_WIDTH; i < doc->n && i < j + 2 * DPLDA_WIDTH; i++) {
            for (ptrdiff_t k = 0; k < size; k += DPLDA_WIDTH) {
                DPLDA_PREFETCH(doc->phi + doc->word[i] * size + k);
            }
        }
        NAME(add_tile)(doc, j, DPLDA_WIDTH, padded, in_pairs, weight, new_theta);
    }
    if (j < doc->n) {
        NAME(add_tile)(doc, j, doc->n - j, padded, in_pairs, weight, new_theta);
    }
}

/* exp(E[log theta]) of the Dirichlet law with mean theta; gamma: (padded,), its parameters. */
static void NAME(expectations_of)(const dplda_document *doc, const float *theta, float *gamma,
                                  float *weight) {
    const vec total = v_all(doc->total);
    for (ptrdiff_t k = 0; k < doc->padded; k += DPLDA_WIDTH) {
        v_store(gamma + k, v_mul(v_load(theta + k), total));
    }
    NAME(weights_float)(gamma, doc->padded, doc->total, weight);
}

/* One step from theta to theta; its L1 change. new_theta, weight: (padded,). */
DPLDA_INLINE float NAME(update_topics)(const dplda_document *doc, float *theta, float *new_theta,
                                       float *weight) {
    const ptrdiff_t padded = doc->padded;
    const float *factor = doc->variational ? weight : theta;
    vec total = v_all(0), change = total;
    if (doc->variational) {
        NAME(expectations_of)(doc, theta, new_theta, weight);
    }
    memset(new_theta, 0, padded * sizeof *new_theta);
    if (doc->in_pairs && padded == 2 * DPLDA_WIDTH) { /* compiled for this number of topics */
        NAME(add_words)(doc, 2 * DPLDA_WIDTH, 1, factor, new_theta);
    } else if (doc->in_pairs) {
        NAME(add_words)(doc, padded, 1, factor, new_theta);
    } else {
        NAME(add_words)(doc, padded, 0, factor, new_theta);
    }
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec x = v_add(v_mul(v_load(new_theta + k), v_load(factor + k)), v_load(doc->prior + k));
        v_store(new_theta + k, x);
        total = v_add(total, x);
    }
    total = v_all(1 / v_sum(total));
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec x = v_mul(v_load(new_theta + k), total), difference = v_sub(x, v_load(theta + k));
        change = v_add(change, v_max(difference, v_sub(v_all(0), difference)));
        v_store(theta + k, x);
    }
    return v_sum(change);
}

/* theta = first + 2 a r + a**2 v, where r = second - first, v = theta - second - r, a = |r| / |v|.
 *
 * The squared extrapolation of Varadhan and Roland (2008), from two steps first, second, theta. A
 * weight stays above an eighth of its last value and above `floor`; theta sums to 1. */
DPLDA_INLINE void NAME(extrapolate)(const float *first, const float *second, ptrdiff_t padded,
                                    const float *floor, float *theta) {
    vec rr = v_all(0), vv = rr, total = rr;
    float a;
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec r = v_sub(v_load(second + k), v_load(first + k));
        const vec v = v_sub(v_sub(v_load(theta + k), v_load(second + k)), r);
        rr = v_add(rr, v_mul(r, r));
        vv = v_add(vv, v_mul(v, v));
    }
    a = sqrtf(v_sum(rr) / v_sum(vv));
    if (!(a > 1 && a < 1e6f)) {
        return;
    }
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec t = v_load(theta + k), r = v_sub(v_load(second + k), v_load(first + k));
        const vec v = v_sub(v_sub(t, v_load(second + k)), r);
        const vec far = v_mul(v_all(a), v_add(v_add(r, r), v_mul(v_all(a), v)));
        const vec least = v_max(v_mul(v_all(0.125f), t), v_load(floor + k));
        const vec x = v_max(v_add(v_load(first + k), far), least);
        v_store(theta + k, x);
        total = v_add(total, x);
    }
    total = v_all(1 / v_sum(total));
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        v_store(theta + k, v_mul(v_load(theta + k), total));
    }
}

/* Steps from theta until one changes it by less than `tol`, at most max_iter.
 *
 * After every two steps follows an extrapolation. It is undone if the next step is longer than the
 * first of the two. scratch: (5 * padded,). */
static void NAME(converge)(const dplda_document *doc, ptrdiff_t max_iter, float tol, float *theta,
                           float *scratch) {
    const ptrdiff_t padded = doc->padded;
    const size_t size = padded * sizeof *theta;
    float *first = scratch, *second = first + padded, *third = second + padded;
    float *new_theta = third + padded, *weight = new_theta + padded, longest = INFINITY;
    int n_steps = 0; /* since the last extrapolation */
    for (ptrdiff_t i = 0; doc->n && i < max_iter; i++) {
        float change;
        memcpy(n_steps ? second : first, theta, size);
        change = NAME(update_topics)(doc, theta, new_theta, weight);
        if (n_steps == 0 && change > longest) {
            memcpy(theta, third, size);
            longest = INFINITY;
            continue;
        }
        if (change < tol) {
            break;
        }
        if (n_steps++ == 0) {
            longest = change;
            continue;
        }
        if (i + 1 == max_iter) {
            break; /* the last one is a step */
        }
        memcpy(third, theta, size);
        for (ptrdiff_t k = 0; k < padded; k++) {
            new_theta[k] = doc->prior[k] / doc->total; /* no fixed point has less */
        }
        NAME(extrapolate)(first, second, padded, new_theta, theta);
        n_steps = 0;
    }
}

/* At most max_iter steps from theta, until its L1 change is below tol.
 *
 * accelerated: whether to extrapolate; variational: theta becomes exp(E[log theta]) in the end.
 * scratch: (6 * padded,). */
static void NAME(fold_in)(const int32_t *word, const float *count, ptrdiff_t n, const float *phi,
                          int in_pairs, ptrdiff_t padded, float prior, ptrdiff_t n_components,
                          ptrdiff_t max_iter, float tol, int accelerated, int variational,
                          float *theta, float *scratch) {
    float *priors = scratch, *new_theta = priors + padded, *weight = new_theta + padded;
    dplda_document doc = {n, word, count, phi, in_pairs, padded, priors, 0, variational};
    for (ptrdiff_t k = 0; k < padded; k++) {
        priors[k] = k < n_components ? prior : 0;
    }
    for (ptrdiff_t j = 0; j < n; j++) {
        doc.total += count[j];
    }
    doc.total += n_components * prior;
    if (accelerated) {
        NAME(converge)(&doc, max_iter, tol, theta, new_theta);
        max_iter = 0;
    }
    for (ptrdiff_t i = 0; n && i < max_iter; i++) {
        if (NAME(update_topics)(&doc, theta, new_theta, weight) < tol) {
            break;
        }
    }
    if (variational) {
        NAME(expectations_of)(&doc, theta, new_theta, weight);
        memcpy(theta, weight, padded * sizeof *theta);
    }
}

/* row = a word's row of pairs, less what x counts of a document have added to it: quotient times
 * own_k of topic k. At least `least` counts of each topic are left. */
DPLDA_INLINE void NAME(without)(const float *pairs, ptrdiff_t padded, float quotient,
                                const float *own, const float *inverse_size, float least,
                                float *row) {
    const vec one = v_all(1), q = v_all(quotient), floor = v_all(least);
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        vec p = v_load(pairs + k / (2 * DPLDA_WIDTH) * DPLDA_WIDTH);
        if (k / DPLDA_WIDTH % 2) {
            p = NAME(second_of)(p);
        }
        p = v_mul(p, v_sub(one, v_mul(q, v_load(own + k))));
        v_store(row + k, v_max(p, v_mul(floor, v_load(inverse_size + k))));
    }
}

/* The rows of a document's words, less what the document itself has added to the table.
 *
 * x counts of word v have added about x theta_k phi_vk / (theta phi_v) to N_k phi_vk. phi: pairs;
 * inverse_size: (padded,) 1 / N_k, 0 on the padding; scratch: (2 * padded,);
 * rows: (n, dplda_pairs(padded)). */
static void NAME(leave_out)(const int32_t *word, const float *count, ptrdiff_t n, const float *phi,
                            ptrdiff_t padded, const float *theta, const float *inverse_size,
                            float least, float *scratch, float *rows) {
    const dplda_document doc = {n, word, count, phi, 1, padded, 0, 0, 0};
    float *own = scratch, *row = own + padded, quotient[DPLDA_WIDTH];
    const float *of_word[DPLDA_WIDTH];
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        v_store(own + k, v_mul(v_load(theta + k), v_load(inverse_size + k)));
    }
    for (ptrdiff_t j = 0; j < n; j += DPLDA_WIDTH) {
        const ptrdiff_t n_words = n - j < DPLDA_WIDTH ? n - j : DPLDA_WIDTH;
        NAME(read_tile)(&doc, j, n_words, padded, 1, theta, of_word, quotient);
        for (ptrdiff_t i = 0; i < n_words; i++, rows += dplda_pairs(padded)) {
            NAME(without)(of_word[i], padded, quotient[i], own, inverse_size, least, row);
            NAME(pack)(row, padded, rows);
        }
    }
}
