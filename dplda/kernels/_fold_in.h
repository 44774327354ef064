/* Topic weights of documents under a fixed table; in _variational.h.
 *
 * By expectation-maximization, or by the steps of variational Bayes: there exp(E[log theta]) takes
 * the place of theta, the mean, in the shares of words. A step adds the row of each word to the
 * topics, times count / (theta . row): what multiplies a whole row does not matter.
 *
 * The table is one of floats, padded with zeros to a multiple of 16 topics, or one of bytes, relative
 * to the largest of each row. Sums of bytes are exact in a group of words, whose rows stay in the
 * first level of the cache. Sums of floats have a fixed order: words four at a time; groups; the 16
 * lanes as v_sum adds them.
 *
 * A step of a short document waits for its own results most of the time: for a largest quotient, a
 * division, a sum of lanes. So some documents take their steps together, part by part. The definition
 * is `fold_in` in tests/twins.py.
 */
#ifndef DPLDA_FOLD_IN_H
#define DPLDA_FOLD_IN_H
enum {
    DPLDA_TOGETHER = 8, /* documents */
    DPLDA_GROUP = 256,  /* words at most: 256 * 255 * 32767 < 2^31 */
    DPLDA_NEAR = 1 << 14 /* bytes of a table that stay near */
};

#ifdef __GNUC__
#define DPLDA_CALLED static __attribute__((noinline)) /* for gcc 12 to find the registers */
#else
#define DPLDA_CALLED static
#endif

/* A table, and how to infer from it. */
typedef struct {
    const float *phi;     /* (n_words, padded) */
    const uint8_t *bytes; /* the same from `narrow`, (n_words, n_topics); NULL: phi is read */
    ptrdiff_t padded;
    ptrdiff_t n_components;
    float prior;
    ptrdiff_t max_iter;
    float tol;
    int variational;
    const float *inverse_size; /* (padded,) 1 / topic sizes, and 0 on the padding; NULL: nothing is
                                * left out */
    float least;               /* count of a cell */
} dplda_inference;

/* What a step keeps of a group of words. */
typedef struct {
    int32_t share[DPLDA_GROUP];
    float quotient[DPLDA_GROUP + 32];
    int16_t narrow[DPLDA_GROUP + 32]; /* quotients in 15 bits */
    float unit;                  /* what their 1 stands for */
} dplda_group;

/* A document, and the state of its steps. */
typedef struct {
    ptrdiff_t n; /* different words */
    const int32_t *word;
    const float *count;
    const uint8_t *bytes; /* of the table, or of its own; NULL: floats are read */
    float total;          /* all counts and priors */
    float *theta;         /* (padded,), as all that follow */
    float *first, *second, *third, *new_theta, *weight;
    float *spare;
    float scale;   /* of the weights in 15 bits, in `spare` */
    float longest; /* first step before the last extrapolation */
    int n_steps;   /* since the last extrapolation */
    dplda_group *group;
} dplda_document;

/* Bytes of a row, and words of a group. */
DPLDA_INLINE ptrdiff_t dplda_row(const dplda_inference *all) { return (all->padded + 31) / 32 * 32; }
DPLDA_INLINE ptrdiff_t dplda_group_size(const dplda_inference *all) {
    const ptrdiff_t n = DPLDA_NEAR / dplda_row(all) / 16 * 16;
    return n < 16 ? 16 : n < DPLDA_GROUP ? n : DPLDA_GROUP;
}
#endif

/* new_theta += the shares of all words in each topic, over their weights. */
DPLDA_INLINE void NAME(add_floats)(const dplda_inference *all, const dplda_document *doc,
                                   const float *weight) {
    const ptrdiff_t padded = all->padded;
    const float *phi = all->phi;
    float *new_theta = doc->new_theta;
    for (ptrdiff_t first = 0; first < doc->n; first += DPLDA_WIDTH) {
        const ptrdiff_t left = doc->n - first, n_words = left < DPLDA_WIDTH ? left : DPLDA_WIDTH;
        const float *row[DPLDA_WIDTH];
        float quotient[DPLDA_WIDTH] = {0};
        vec sum[DPLDA_WIDTH], share;
        for (ptrdiff_t i = 0; i < DPLDA_WIDTH; i++) {
            row[i] = phi + doc->word[first + (i < n_words ? i : 0)] * padded;
            for (ptrdiff_t k = 0; k < padded && i + DPLDA_WIDTH < left; k += DPLDA_WIDTH) {
                DPLDA_PREFETCH(phi + doc->word[first + i + DPLDA_WIDTH] * padded + k);
            }
        }
        for (ptrdiff_t i = 0; i < DPLDA_WIDTH; i += 4) {
            vec s0 = v_all(0), s1 = s0, s2 = s0, s3 = s0;
            for (ptrdiff_t k = 0; k < padded && i < n_words; k += DPLDA_WIDTH) {
                const vec t = v_load(weight + k);
                s0 = v_add(s0, v_mul(t, v_load(row[i] + k)));
                s1 = v_add(s1, v_mul(t, v_load(row[i + 1] + k)));
                s2 = v_add(s2, v_mul(t, v_load(row[i + 2] + k)));
                s3 = v_add(s3, v_mul(t, v_load(row[i + 3] + k)));
            }
            sum[i] = s0, sum[i + 1] = s1, sum[i + 2] = s2, sum[i + 3] = s3;
        }
        memcpy(quotient, doc->count + first, n_words * sizeof *quotient);
        share = v_sums(sum); /* 0 where it might overflow: all topics nearly exclude the word */
        sum[0] = v_above(share, v_all(1e-28f), v_load(quotient));
        v_store(quotient, v_div(sum[0], v_max(share, v_all(1e-28f))));
        for (ptrdiff_t i = 0; i < n_words; i += 4) {
            const vec q0 = v_all(quotient[i]), q1 = v_all(quotient[i + 1]);
            const vec q2 = v_all(quotient[i + 2]), q3 = v_all(quotient[i + 3]);
            for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
                const vec x = v_add(v_mul(q0, v_load(row[i] + k)), v_mul(q1, v_load(row[i + 1] + k)));
                const vec y = v_mul(q2, v_load(row[i + 2] + k));
                const vec z = v_add(x, v_add(y, v_mul(q3, v_load(row[i + 3] + k))));
                v_store(new_theta + k, v_add(v_load(new_theta + k), z));
            }
        }
    }
}

/* The probabilities of n words, times the scale of the weights. */
DPLDA_INLINE void NAME(add_topics)(const ptrdiff_t n_topics, const dplda_document *doc,
                                   const int32_t *of, ptrdiff_t n) {
    const int16_t *weight = (const int16_t *)doc->spare;
    for (ptrdiff_t word = 0; word < n; word += 4) {
        const uint8_t *row[4];
        veci s[4];
        for (int i = 0; i < 4; i++) {
            row[i] = doc->bytes + of[word + i < n ? word + i : 0] * n_topics, s[i] = vi_all(0);
        }
        for (ptrdiff_t k = 0; k < n_topics; k += 32) {
            const vs t = vs_load(weight + k);
            for (int i = 0; i < 4; i++) {
                s[i] = vi_add_products(s[i], vs_bytes(row[i] + k), t);
            }
        }
        vi_sums4(s, doc->group->share + word);
    }
}

/* The same of the words from `begin` on. A constant number of topics is faster. */
DPLDA_CALLED void NAME(shares)(const dplda_document *doc, ptrdiff_t begin, ptrdiff_t n,
                               ptrdiff_t n_topics) {
    const int32_t *of = doc->word + begin;
    switch (n_topics) {
    case 32: NAME(add_topics)(32, doc, of, n); break;
    case 64: NAME(add_topics)(64, doc, of, n); break;
    case 128: NAME(add_topics)(128, doc, of, n); break;
    default: NAME(add_topics)(n_topics, doc, of, n);
    }
}

/* Counts over the probabilities, of 16 words: these are at least 2^-12 of the largest of the row, for
 * the quotients of other words to keep some bits. */
DPLDA_INLINE vec NAME(quotient)(const dplda_document *doc, const float *count, ptrdiff_t word) {
    const vec share = v_max(v_float(vi_load(doc->group->share + word)), v_all(doc->scale / 16));
    const vec quotient = v_div(v_mul(v_load(count), v_all(doc->scale)), share);
    v_store(doc->group->quotient + word, quotient);
    return quotient;
}

/* The quotients of n words from `begin` on, and the same in 15 bits. */
DPLDA_CALLED void NAME(quotients)(const dplda_document *doc, ptrdiff_t begin, ptrdiff_t n) {
    dplda_group *group = doc->group;
    const float *count = doc->count + begin;
    const ptrdiff_t last = n - 16; /* word from which on 16 are left */
    vec most = v_all(0);
    float largest, few[16] = {0};
    if (last < 0) {
        for (ptrdiff_t word = 0; word < n; word++) {
            few[word] = count[word];
        }
        most = NAME(quotient)(doc, few, 0);
    } else {
        for (ptrdiff_t word = 0; word < last; word += 16) {
            most = v_max(NAME(quotient)(doc, count + word, word), most);
        }
        most = v_max(NAME(quotient)(doc, count + last, last), most);
    }
    v_store(group->quotient + n, v_all(0)), v_store(group->quotient + n + 16, v_all(0));
    largest = NAME(most)(most);
    group->unit = largest / 32767;
    NAME(narrow)
    (group->quotient, 0, n + 32, largest > 0 ? 32767 / largest : 0, (n + 31) / 32 * 32, group->narrow);
}

/* to += n_parts times 32 topics of the rows of n words, times their quotients. */
DPLDA_INLINE void NAME(add_parts)(const int n_parts, const dplda_group *group, const uint8_t *bytes,
                                  const int32_t *of, ptrdiff_t n, ptrdiff_t n_topics, float *to,
                                  ptrdiff_t padded) {
    const int32_t *pair = (const int32_t *)group->narrow;
    const vec unit = v_all(group->unit);
    veci sum[4];
    for (int i = 0; i < 2 * n_parts; i++) {
        sum[i] = vi_all(0);
    }
    for (ptrdiff_t word = 0; word < n; word += 2) {
        const uint8_t *row = bytes + of[word] * n_topics;
        const uint8_t *next = bytes + of[word + (word + 1 < n)] * n_topics;
        const vs two = vs_pairs(pair[word / 2]); /* the second is 0 if there is none */
        for (int i = 0; i < n_parts; i++) {
            vs low, high;
            vs_two_rows(row + 32 * i, next + 32 * i, &low, &high);
            sum[2 * i] = vi_add_products(sum[2 * i], low, two);
            sum[2 * i + 1] = vi_add_products(sum[2 * i + 1], high, two);
        }
    }
    for (int i = 0; i < n_parts; i++) {
        vi_in_order(sum + 2 * i, sum + 2 * i + 1);
    }
    for (int i = 0; i < 2 * n_parts && 16 * i < padded; i++) {
        v_store(to + 16 * i, v_add(v_load(to + 16 * i), v_mul(v_float(sum[i]), unit)));
    }
}

/* new_theta += the rows of the n words from `begin` on, times their quotients. */
DPLDA_CALLED void NAME(add_rows)(const dplda_inference *all, const dplda_document *doc,
                                 ptrdiff_t begin, ptrdiff_t n) {
    const ptrdiff_t n_topics = dplda_row(all), padded = all->padded;
    const int32_t *of = doc->word + begin;
    ptrdiff_t k = 0;
    for (; k + 32 < padded; k += 64) {
        NAME(add_parts)
        (2, doc->group, doc->bytes + k, of, n, n_topics, doc->new_theta + k, padded - k);
    }
    if (k < padded) {
        NAME(add_parts)
        (1, doc->group, doc->bytes + k, of, n, n_topics, doc->new_theta + k, padded - k);
    }
}

/* Weights in 15 bits, in `spare`. */
DPLDA_CALLED void NAME(narrow_weights)(const dplda_inference *all, dplda_document *doc,
                                 const float *weight) {
    /* Rounded weights sum to less than 2^19, so that sums of their products with bytes are below 2^27:
     * weights sum to at most 1, and each gains at most 1/2. */
    float scale = (1 << 19) - all->padded, largest;
    vec most = v_all(0);
    for (ptrdiff_t k = 0; k < all->padded; k += DPLDA_WIDTH) {
        most = v_max(v_load(weight + k), most);
    }
    largest = NAME(most)(most);
    doc->scale = largest * scale > 32767 ? 32767 / largest : scale;
    NAME(narrow)(weight, 0, all->padded, doc->scale, dplda_row(all), (int16_t *)doc->spare);
}

/* new_theta += the shares of all words of m documents, over their weights. */
DPLDA_INLINE void NAME(add_integers)(const dplda_inference *all, dplda_document *const *docs, int m) {
    const ptrdiff_t size = dplda_group_size(all);
    int are_left = 1;
    for (int i = 0; i < m; i++) {
        NAME(narrow_weights)(all, docs[i], all->variational ? docs[i]->weight : docs[i]->theta);
    }
    for (ptrdiff_t begin = 0; are_left; begin += size) {
        ptrdiff_t n[DPLDA_TOGETHER];
        are_left = 0;
        for (int i = 0; i < m; i++) {
            n[i] = docs[i]->n - begin;
            are_left |= n[i] > size;
            n[i] = n[i] < size ? n[i] : size;
            if (n[i] > 0) {
                NAME(shares)(docs[i], begin, n[i], dplda_row(all));
            }
        }
        for (int i = 0; i < m; i++) {
            if (n[i] > 0) {
                NAME(quotients)(docs[i], begin, n[i]);
            }
        }
        for (int i = 0; i < m; i++) {
            if (n[i] > 0) {
                NAME(add_rows)(all, docs[i], begin, n[i]);
            }
        }
    }
}

/* exp(E[log theta]) of the Dirichlet law with mean theta, in `weight`. */
static void NAME(expectations_of)(const dplda_inference *all, const dplda_document *doc) {
    const vec total = v_all(doc->total);
    for (ptrdiff_t k = 0; k < all->padded; k += DPLDA_WIDTH) {
        v_store(doc->new_theta + k, v_mul(v_load(doc->theta + k), total));
    }
    NAME(weights_float)(doc->new_theta, all->padded, doc->total, doc->weight);
}

/* Copy topic weights; zeros if there are none. Calls of the C library take longer. */
DPLDA_INLINE void NAME(set_topics)(float *to, const float *from, ptrdiff_t padded) {
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        v_store(to + k, from == NULL ? v_all(0) : v_load(from + k));
    }
}

/* Move theta to new_theta times its factor, plus the priors, and copy it to `before`; the L1 change of
 * theta. */
DPLDA_INLINE float NAME(move)(const ptrdiff_t padded, const dplda_document *doc, const float *factor,
                              const float *priors, float *before) {
    vec total = v_all(0), change = total;
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec x = v_mul(v_load(doc->new_theta + k), v_load(factor + k));
        const vec with_prior = v_add(x, v_load(priors + k));
        v_store(doc->new_theta + k, with_prior);
        total = v_add(total, with_prior);
    }
    total = v_all(1 / v_sum(total));
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec x = v_mul(v_load(doc->new_theta + k), total), old = v_load(doc->theta + k);
        const vec difference = v_sub(x, old);
        change = v_add(change, v_max(difference, v_sub(v_all(0), difference)));
        v_store(before + k, old), v_store(doc->theta + k, x);
        v_store(doc->new_theta + k, v_all(0));
    }
    return v_sum(change);
}

/* The same. A constant number of topics is faster. */
DPLDA_CALLED float NAME(move_topics)(const dplda_inference *all, const dplda_document *doc,
                                     const float *priors) {
    const float *factor = all->variational ? doc->weight : doc->theta;
    float *before = doc->n_steps ? doc->second : doc->first;
    switch (all->padded) {
    case 32: return NAME(move)(32, doc, factor, priors, before);
    case 64: return NAME(move)(64, doc, factor, priors, before);
    default: return NAME(move)(all->padded, doc, factor, priors, before);
    }
}

/* One step of m documents; their changes. */
DPLDA_INLINE void NAME(update_topics)(const dplda_inference *all, dplda_document *const *docs, int m,
                                      const float *priors, float *change) {
    for (int i = 0; i < m; i++) {
        if (all->variational) {
            NAME(expectations_of)(all, docs[i]);
            NAME(set_topics)(docs[i]->new_theta, NULL, all->padded);
        }
    }
    if (all->bytes != NULL) {
        NAME(add_integers)(all, docs, m);
    }
    for (int i = 0; i < m; i++) {
        if (all->bytes == NULL) {
            NAME(add_floats)(all, docs[i], all->variational ? docs[i]->weight : docs[i]->theta);
        }
        change[i] = NAME(move_topics)(all, docs[i], priors);
    }
}

/* theta = first + 2 a r + a**2 v, where r = second - first, v = theta - second - r, and `length` is
 * a = |r| / |v|.
 *
 * The squared extrapolation of Varadhan and Roland (2008), from two steps first, second, theta. A
 * weight stays above an eighth of its last value and, where it has a prior, above `floor`; theta sums to
 * 1. */
DPLDA_INLINE void NAME(extrapolate)(const float *first, const float *second, ptrdiff_t padded,
                                    const float *priors, vec floor, float *theta) {
    vec rr = v_all(0), vv = rr, total = rr;
    float length; /* of the extrapolation */
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec r = v_sub(v_load(second + k), v_load(first + k));
        const vec v = v_sub(v_sub(v_load(theta + k), v_load(second + k)), r);
        rr = v_add(rr, v_mul(r, r));
        vv = v_add(vv, v_mul(v, v));
    }
    length = sqrtf(v_sum(rr) / v_sum(vv));
    if (!(length > 1 && length < 1e6f)) {
        return;
    }
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        const vec t = v_load(theta + k), r = v_sub(v_load(second + k), v_load(first + k));
        const vec v = v_sub(v_sub(t, v_load(second + k)), r);
        const vec far = v_mul(v_all(length), v_add(v_add(r, r), v_mul(v_all(length), v)));
        const vec own_floor = v_above(v_load(priors + k), v_all(0), floor);
        const vec least = v_max(v_mul(v_all(0.125f), t), own_floor);
        const vec x = v_max(v_add(v_load(first + k), far), least);
        v_store(theta + k, x);
        total = v_add(total, x);
    }
    total = v_all(1 / v_sum(total));
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        v_store(theta + k, v_mul(v_load(theta + k), total));
    }
}

/* Whether a document needs more steps, after one that has changed it by `change`.
 *
 * After every two steps follows an extrapolation. It is undone if the next step is longer than the
 * first of the two. */
DPLDA_CALLED int NAME(goes_on)(const dplda_inference *all, dplda_document *doc, float change,
                               int is_last, const float *priors) {
    const ptrdiff_t padded = all->padded;
    /* no fixed point has less */
    const vec least = v_all(all->prior / doc->total);
    if (doc->n_steps == 0 && change > doc->longest) {
        NAME(set_topics)(doc->theta, doc->third, padded);
        doc->longest = INFINITY;
        return 1;
    }
    if (change < all->tol) {
        return 0;
    }
    if (doc->n_steps++ == 0) {
        doc->longest = change;
        return 1;
    }
    if (is_last) {
        return 0; /* the last one is a step */
    }
    NAME(set_topics)(doc->third, doc->theta, padded);
    NAME(extrapolate)(doc->first, doc->second, padded, priors, least, doc->theta);
    doc->n_steps = 0;
    return 1;
}

/* Steps of m documents until one changes a document by less than `tol`, at most max_iter. */
static void NAME(converge)(const dplda_inference *all, dplda_document *docs, int m,
                           const float *priors) {
    dplda_document *moving[DPLDA_TOGETHER];
    float change[DPLDA_TOGETHER];
    int n_moving = 0;
    for (int i = 0; i < m; i++) {
        moving[n_moving] = docs + i;
        n_moving += docs[i].n > 0;
    }
    for (ptrdiff_t iteration = 0; n_moving && iteration < all->max_iter; iteration++) {
        int n = 0;
        NAME(update_topics)(all, moving, n_moving, priors, change);
        for (int i = 0; i < n_moving; i++) {
            moving[n] = moving[i];
            n += NAME(goes_on)(all, moving[i], change[i], iteration + 1 == all->max_iter, priors);
        }
        n_moving = n;
    }
}

/* The row of a word in bytes, without what the document has added to it; row: (padded,) scratch.
 *
 * x counts of word v have added about x theta_k phi_vk / (theta phi_v) to N_k phi_vk. At least
 * `least` counts of each topic are left. */
static void NAME(leave_out)(const dplda_inference *all, ptrdiff_t word, float count,
                            const float *theta, float *row, uint8_t *to) {
    const float *phi = all->phi + word * all->padded;
    vec share = v_all(0);
    for (ptrdiff_t k = 0; k < all->padded; k += DPLDA_WIDTH) {
        share = v_add(share, v_mul(v_load(theta + k), v_load(phi + k)));
    }
    const float sum = v_sum(share), quotient = count / (sum > 1e-25f ? sum : 1e-25f);
    for (ptrdiff_t k = 0; k < all->padded; k += DPLDA_WIDTH) {
        const vec size = v_load(all->inverse_size + k), own = v_mul(v_load(theta + k), size);
        const vec left = v_mul(v_load(phi + k), v_sub(v_all(1), v_mul(v_all(quotient), own)));
        v_store(row + k, v_max(left, v_mul(v_all(all->least), size)));
    }
    NAME(narrow_bytes)(row, all->padded, to);
}

/* Give a document rows of its own, without what it has added to them. Equal weights are those of a
 * document without an inference yet. */
static void NAME(leave_out_all)(const dplda_inference *all, dplda_document *doc, uint8_t *copy,
                                const int32_t *numbers) {
    int are_equal = 1;
    for (ptrdiff_t k = 1; k < all->n_components; k++) {
        are_equal &= doc->theta[k] == doc->theta[0];
    }
    for (ptrdiff_t j = 0; j < doc->n && !are_equal; j++) {
        NAME(leave_out)(all, doc->word[j], doc->count[j], doc->theta, doc->spare,
                        copy + j * dplda_row(all));
    }
    if (!are_equal) {
        doc->bytes = copy, doc->word = numbers;
    }
}

/* Steps from theta, accelerated, of m documents, of which n, word, count and theta are set; theta
 * becomes exp(E[log theta]) in the end if variational. scratch: (1 + 6 m, padded).
 *
 * copy: (n, n_topics), for the rows of the one document whose own counts are left out; numbers: 0, 1,
 * and so on up to n - 1; else NULL. */
static void NAME(fold_in)(const dplda_inference *all, dplda_document *docs, int m, float *scratch,
                          uint8_t *copy, const int32_t *numbers) {
    const ptrdiff_t padded = all->padded;
    float *priors = scratch;
    dplda_group groups[DPLDA_TOGETHER];
    for (ptrdiff_t k = 0; k < padded; k++) {
        priors[k] = k < all->n_components ? all->prior : 0;
    }
    scratch += padded;
    for (int i = 0; i < m; i++) {
        dplda_document *doc = docs + i;
        float **rows[6] = {&doc->first,     &doc->second, &doc->third,
                           &doc->new_theta, &doc->weight, &doc->spare};
        for (int row = 0; row < 6; row++, scratch += padded) {
            *rows[row] = scratch;
        }
        doc->bytes = all->bytes, doc->group = groups + i;
        doc->longest = INFINITY, doc->n_steps = 0, doc->total = 0;
        for (ptrdiff_t j = 0; j < doc->n; j++) {
            doc->total += doc->count[j];
        }
        doc->total += all->n_components * all->prior;
    }
    if (all->inverse_size != NULL) {
        NAME(leave_out_all)(all, docs, copy, numbers);
    }
    for (int i = 0; i < m; i++) {
        NAME(set_topics)(docs[i].new_theta, NULL, padded);
    }
    NAME(converge)(all, docs, m, priors);
    for (int i = 0; i < m && all->variational; i++) {
        NAME(expectations_of)(all, docs + i);
        NAME(set_topics)(docs[i].theta, docs[i].weight, padded);
    }
}
