/* Topic weights of a document under a fixed table; in _variational.h.
 *
 * By expectation-maximization, or by the steps of variational Bayes: there exp(E[log theta]) takes
 * the place of theta, the mean, in the shares of words. A step adds the row of each word to the
 * topics, times count / (theta . row): what multiplies a whole row does not matter.
 *
 * The table is one of floats, padded with zeros to a multiple of 16 topics, or one of integers from
 * 0 to 2^12, relative to the largest of each row. A document copies the integers of its words once
 * for all steps, in groups of at most 16 tiles of 16 words, so that a word is a lane:
 *
 *     copy[group][8 topics][tile][pair of topics][16 words][2 topics]
 *
 * Sums of integers fit into 32 bits: those of 16-bit theta are below 2^19, and a lane adds at most
 * 16 quotients of 15 bits. Sums of floats have a fixed order: words four at a time, or a group; the
 * 16 lanes as v_sum adds them.
 */
#ifndef DPLDA_FOLD_IN_H
#define DPLDA_FOLD_IN_H
enum { DPLDA_GROUP = 256, DPLDA_MOST_12 = 1 << 12 };
#ifdef __GNUC__
#define DPLDA_CALLED static __attribute__((noinline)) /* for gcc 12 to find the registers */
#else
#define DPLDA_CALLED static
#endif

/* A table, and how to infer from it. */
typedef struct {
    const float *phi;    /* (n_words, padded) */
    const int16_t *rows; /* the same from `narrow`, (n_words, n_topics); NULL: phi is read */
    ptrdiff_t n_words;
    ptrdiff_t padded;
    ptrdiff_t n_components;
    ptrdiff_t n_blocks; /* of 8 topics */
    float prior;
    ptrdiff_t max_iter;
    float tol;
    int variational;
    const float *factor;       /* (n_words,) of the integers; NULL: nothing is left out */
    const float *inverse_size; /* (padded,) 1 / topic sizes, and 0 on the padding */
    float least;               /* count of a cell */
} dplda_inference;

/* A document under a table. */
typedef struct {
    const dplda_inference *all;
    ptrdiff_t n; /* different words */
    const int32_t *word;
    const float *count;
    const int16_t *copy; /* of integers; NULL: floats are read */
    const float *prior;  /* (padded,) doc_topic_prior, and 0 on the padding */
    float total;         /* all counts and priors */
} dplda_document;

/* Copy topics k, ..., k + 7 of 16 rows, a word a lane: four vectors of pairs. */
DPLDA_INLINE void dplda_turn(const int16_t *const *row, ptrdiff_t k, int16_t *to) {
#ifdef DPLDA_X86
    for (int i = 0; i < 16; i += 4, to += 8) {
        const __m128i a = _mm_loadu_si128((const __m128i *)(row[i] + k));
        const __m128i b = _mm_loadu_si128((const __m128i *)(row[i + 1] + k));
        const __m128i c = _mm_loadu_si128((const __m128i *)(row[i + 2] + k));
        const __m128i d = _mm_loadu_si128((const __m128i *)(row[i + 3] + k));
        const __m128i ab = _mm_unpacklo_epi32(a, b), cd = _mm_unpacklo_epi32(c, d);
        const __m128i AB = _mm_unpackhi_epi32(a, b), CD = _mm_unpackhi_epi32(c, d);
        _mm_storeu_si128((__m128i *)to, _mm_unpacklo_epi64(ab, cd));
        _mm_storeu_si128((__m128i *)(to + 32), _mm_unpackhi_epi64(ab, cd));
        _mm_storeu_si128((__m128i *)(to + 64), _mm_unpacklo_epi64(AB, CD));
        _mm_storeu_si128((__m128i *)(to + 96), _mm_unpackhi_epi64(AB, CD));
    }
#else
    for (int i = 0; i < 16; i++, to += 2) {
        for (int h = 0; h < 4; h++) {
            memcpy(to + 32 * h, row[i] + k + 2 * h, 2 * sizeof *to);
        }
    }
#endif
}
#endif

/* new_theta += the shares of all words in each topic, over their weights. */
DPLDA_INLINE void NAME(add_floats)(const dplda_document *doc, const float *weight,
                                   float *new_theta) {
    const ptrdiff_t padded = doc->all->padded;
    const float *phi = doc->all->phi;
    for (ptrdiff_t j = 0; j < doc->n; j += DPLDA_WIDTH) {
        const ptrdiff_t left = doc->n - j, n = left < DPLDA_WIDTH ? left : DPLDA_WIDTH;
        const float *row[DPLDA_WIDTH];
        float quotient[DPLDA_WIDTH] = {0};
        vec sum[DPLDA_WIDTH], share;
        for (ptrdiff_t i = 0; i < DPLDA_WIDTH; i++) {
            row[i] = phi + doc->word[j + (i < n ? i : 0)] * padded;
            for (ptrdiff_t k = 0; k < padded && i + DPLDA_WIDTH < left; k += DPLDA_WIDTH) {
                DPLDA_PREFETCH(phi + doc->word[j + i + DPLDA_WIDTH] * padded + k);
            }
        }
        for (ptrdiff_t i = 0; i < DPLDA_WIDTH; i += 4) {
            vec s0 = v_all(0), s1 = s0, s2 = s0, s3 = s0;
            for (ptrdiff_t k = 0; k < padded && i < n; k += DPLDA_WIDTH) {
                const vec t = v_load(weight + k);
                s0 = v_add(s0, v_mul(t, v_load(row[i] + k)));
                s1 = v_add(s1, v_mul(t, v_load(row[i + 1] + k)));
                s2 = v_add(s2, v_mul(t, v_load(row[i + 2] + k)));
                s3 = v_add(s3, v_mul(t, v_load(row[i + 3] + k)));
            }
            sum[i] = s0, sum[i + 1] = s1, sum[i + 2] = s2, sum[i + 3] = s3;
        }
        memcpy(quotient, doc->count + j, n * sizeof *quotient);
        share = v_sums(sum); /* 0 where it might overflow: all topics nearly exclude the word */
        sum[0] = v_above(share, v_all(1e-28f), v_load(quotient));
        v_store(quotient, v_div(sum[0], v_max(share, v_all(1e-28f))));
        for (ptrdiff_t i = 0; i < n; i += 4) {
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

/* Weights in 16 bits, in pairs; returns their scale. They sum to less than 2^19. */
static float NAME(narrow_weights)(const float *weight, ptrdiff_t padded, int32_t *pairs) {
    float scale = (1 << 19) - padded, largest;
    vec most = v_all(0);
    for (ptrdiff_t k = 0; k < padded; k += DPLDA_WIDTH) {
        most = v_max(v_load(weight + k), most);
    }
    largest = NAME(most)(most);
    scale = largest * scale > 32767 ? 32767 / largest : scale;
    NAME(narrow)(weight, 0, padded, scale, (padded + 31) / 32 * 32, (int16_t *)pairs);
    return scale;
}

/* The probabilities of the words of a group, times the scale of the pairs: at least 2^-12 of the
 * largest of the row, for the quotients of other words to keep some bits. */
DPLDA_CALLED void NAME(shares)(const int16_t *copy, ptrdiff_t n_tiles, ptrdiff_t n_blocks,
                               const int32_t *pairs, float scale, vec *share) {
    veci sum[16];
    for (ptrdiff_t b = 0; b < n_blocks; b++, pairs += 4) {
        const vs t0 = vs_pairs(pairs[0]), t1 = vs_pairs(pairs[1]);
        const vs t2 = vs_pairs(pairs[2]), t3 = vs_pairs(pairs[3]);
        for (ptrdiff_t t = 0; t < n_tiles; t++, copy += 128) {
            veci s = b ? sum[t] : vi_all(0);
            s = vi_add_products(vi_add_products(s, t0, vs_load(copy)), t1, vs_load(copy + 32));
            s = vi_add_products(s, t2, vs_load(copy + 64));
            sum[t] = vi_add_products(s, t3, vs_load(copy + 96));
        }
    }
    for (ptrdiff_t t = 0; t < n_tiles; t++) {
        share[t] = v_max(v_float(sum[t]), v_all(scale));
    }
}

#ifdef DPLDA_USE_AVX512
#define DPLDA_PAIRS 4
#else
#define DPLDA_PAIRS 2
#endif
/* Sums of a group for n pairs of topics: their integers times the quotients. */
DPLDA_INLINE void NAME(add_pairs)(const int n, const int16_t *copy, ptrdiff_t n_tiles,
                                  const int16_t *first, const int16_t *second, vec *sum) {
    veci s[8];
    for (int h = 0; h < 2 * n; h++) {
        s[h] = vi_all(0);
    }
    for (ptrdiff_t t = 0; t < n_tiles; t++, copy += 128, first += 32, second += 32) {
        const vs a = vs_load(first), b = vs_load(second);
        for (int h = 0; h < n; h++) {
            const vs x = vs_load(copy + 32 * h);
            s[2 * h] = vi_add_products(s[2 * h], x, a);
            s[2 * h + 1] = vi_add_products(s[2 * h + 1], x, b);
        }
    }
    for (int h = 0; h < 2 * n; h++) {
        sum[h] = v_float(s[h]);
    }
}

/* new_theta += the shares of the words of a group, over the weights that `pairs` stand for. */
DPLDA_INLINE void NAME(add_group)(const int16_t *copy, const float *count, ptrdiff_t n,
                                  ptrdiff_t n_blocks, const int32_t *pairs, float scale,
                                  float *new_theta) {
    const ptrdiff_t n_tiles = (n + 15) / 16;
    vec share[16], quotient[16], most = v_all(0);
    veci first[16], second[16];
    float largest;
    NAME(shares)(copy, n_tiles, n_blocks, pairs, scale, share);
    quotient[n_tiles - 1] = most;
    memcpy(quotient, count, n * sizeof *count);
    for (ptrdiff_t t = 0; t < n_tiles; t++) {
        quotient[t] = v_div(v_mul(quotient[t], v_all(scale)), share[t]);
        most = v_max(quotient[t], most);
    }
    largest = NAME(most)(most);
    if (!(largest > 0)) {
        return;
    }
    for (ptrdiff_t t = 0; t < n_tiles; t++) {
        first[t] = v_truncate(v_add(v_mul(quotient[t], v_all(32767 / largest)), v_all(0.5f)));
        second[t] = vi_shift_left(first[t], 16);
    }
    for (ptrdiff_t b = 0; b < n_blocks; b += 2, new_theta += 16) {
        vec sums[16];
        for (int i = 0; i < 16; i += 2 * DPLDA_PAIRS) {
            const ptrdiff_t block = b + i / 8;
            NAME(add_pairs)
            (DPLDA_PAIRS, copy + (block * n_tiles * 4 + i % 8 / 2) * 32,
             block < n_blocks ? n_tiles : 0, (int16_t *)first, (int16_t *)second, sums + i);
        }
        const vec x = v_mul(v_sums(sums), v_all(largest / 32767));
        v_store(new_theta, v_add(v_load(new_theta), x));
    }
}
#undef DPLDA_PAIRS

/* new_theta += the shares of all words, from the copy of a document; pairs: (n_topics / 2,). */
DPLDA_INLINE void NAME(add_integers)(const dplda_document *doc, const float *weight,
                                     float *new_theta, int32_t *pairs) {
    const float scale = NAME(narrow_weights)(weight, doc->all->padded, pairs);
    for (ptrdiff_t j = 0; j < doc->n; j += DPLDA_GROUP) {
        const ptrdiff_t n = doc->n - j < DPLDA_GROUP ? doc->n - j : DPLDA_GROUP;
        NAME(add_group)
        (doc->copy + j * 8 * doc->all->n_blocks, doc->count + j, n, doc->all->n_blocks, pairs, scale,
         new_theta);
    }
}

/* exp(E[log theta]) of the Dirichlet law with mean theta; gamma: (padded,), its parameters. */
static void NAME(expectations_of)(const dplda_document *doc, const float *theta, float *gamma,
                                  float *weight) {
    const vec total = v_all(doc->total);
    for (ptrdiff_t k = 0; k < doc->all->padded; k += DPLDA_WIDTH) {
        v_store(gamma + k, v_mul(v_load(theta + k), total));
    }
    NAME(weights_float)(gamma, doc->all->padded, doc->total, weight);
}

/* One step from theta to theta; its L1 change. new_theta, weight, spare: (padded,). */
DPLDA_INLINE float NAME(update_topics)(const dplda_document *doc, float *theta, float *new_theta,
                                       float *weight, float *spare) {
    const ptrdiff_t padded = doc->all->padded;
    const float *factor = doc->all->variational ? weight : theta;
    vec total = v_all(0), change = total;
    if (doc->all->variational) {
        NAME(expectations_of)(doc, theta, new_theta, weight);
    }
    memset(new_theta, 0, padded * sizeof *new_theta);
    if (doc->copy != NULL) {
        NAME(add_integers)(doc, factor, new_theta, (int32_t *)spare);
    } else {
        NAME(add_floats)(doc, factor, new_theta);
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
 * first of the two. scratch: (6 * padded,). */
static void NAME(converge)(const dplda_document *doc, ptrdiff_t max_iter, float tol, float *theta,
                           float *scratch) {
    const ptrdiff_t padded = doc->all->padded;
    const size_t size = padded * sizeof *theta;
    float *first = scratch, *second = first + padded, *third = second + padded;
    float *new_theta = third + padded, *weight = new_theta + padded, *spare = weight + padded;
    float longest = INFINITY;
    int n_steps = 0; /* since the last extrapolation */
    for (ptrdiff_t i = 0; doc->n && i < max_iter; i++) {
        float change;
        memcpy(n_steps ? second : first, theta, size);
        change = NAME(update_topics)(doc, theta, new_theta, weight, spare);
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

/* Copy the integers of n <= 256 words, with `left` in the document from the first one on. */
static void NAME(copy_group)(const dplda_inference *all, const int32_t *word, ptrdiff_t n,
                             ptrdiff_t left, int16_t *copy) {
    const ptrdiff_t n_topics = (all->padded + 31) / 32 * 32, n_lanes = (n + 15) / 16 * 16;
    for (ptrdiff_t j = 0; j < n; j += 16, copy += 128) {
        for (ptrdiff_t k = 0, width; k < n_topics; k += width) {
            const int16_t *row[16], *chunk = all->rows + k * all->n_words;
            width = dplda_chunk(n_topics - k);
            for (ptrdiff_t i = j; i < j + 16; i++) {
                row[i - j] = chunk + word[i < n ? i : 0] * width;
                for (ptrdiff_t c = 0; c < width && i + 16 < left; c += 32) {
                    DPLDA_PREFETCH(chunk + word[i + 16] * width + c);
                }
            }
            for (ptrdiff_t c = 0; c < width && k + c < 8 * all->n_blocks; c += 8) {
                dplda_turn(row, c, copy + (k + c) * n_lanes);
            }
        }
    }
}

/* The integers of a topic, less what the document has added: quotient times own, down to least. */
DPLDA_INLINE veci NAME(without)(veci x, vec quotient, float own, vec factor, float least) {
    const vec p = v_mul(v_float(x), v_sub(v_all(1), v_mul(quotient, v_all(own))));
    const vec q = v_min(v_max(p, v_mul(factor, v_all(least))), v_all(DPLDA_MOST_12));
    return v_truncate(v_add(q, v_all(0.5f)));
}

/* Take what a document has added to the table out of the copy of n <= 256 of its words.
 *
 * x counts of word v have added about x theta_k phi_vk / (theta phi_v) to N_k phi_vk. At least
 * `least` counts of each topic are left. pairs: (n_topics / 2,). */
static void NAME(leave_out)(const dplda_inference *all, const int32_t *word, const float *count,
                            ptrdiff_t n, const float *theta, int32_t *pairs, int16_t *copy) {
    const float scale = NAME(narrow_weights)(theta, all->padded, pairs);
    const ptrdiff_t n_tiles = (n + 15) / 16;
    vec share[16];
    NAME(shares)(copy, n_tiles, all->n_blocks, pairs, scale, share);
    for (ptrdiff_t t = 0; t < n_tiles; t++, word += 16, count += 16, n -= 16) {
        float factors[16] = {0}, counts[16] = {0};
        for (ptrdiff_t i = 0; i < 16 && i < n; i++) {
            factors[i] = all->factor[word[i]], counts[i] = count[i] * factors[i];
        }
        const vec q = v_div(v_mul(v_load(counts), v_all(scale)), share[t]), f = v_load(factors);
        for (ptrdiff_t k = 0; k < 8 * all->n_blocks; k += 2) {
            const float *size = all->inverse_size + k, least = all->least;
            int32_t *both = (int32_t *)(copy + (k / 8 * n_tiles + t) * 128 + k % 8 * 16);
            const veci x = vi_load(both), first = vi_shift_right(vi_shift_left(x, 16), 16);
            const veci low = NAME(without)(first, q, theta[k] * size[0], f, least * size[0]);
            const veci high = NAME(without)(vi_shift_right(x, 16), q, theta[k + 1] * size[1], f,
                                            least * size[1]);
            vi_store(both, vi_add(low, vi_shift_left(high, 16)));
        }
    }
}

/* Steps from theta, accelerated, of a document of n words; theta becomes exp(E[log theta]) in the
 * end if variational. scratch: (7 * padded,); copy: (n up to a multiple of 16, n_topics). */
static void NAME(fold_in)(const dplda_inference *all, const int32_t *word, const float *count,
                          ptrdiff_t n, float *theta, float *scratch, int16_t *copy) {
    const ptrdiff_t padded = all->padded;
    float *priors = scratch, *rest = priors + padded;
    dplda_document doc = {all, n, word, count, all->rows == NULL ? NULL : copy, priors, 0};
    int leaves_out = 0; /* equal weights are those of a document without an inference yet */
    for (ptrdiff_t k = 0; k < padded; k++) {
        priors[k] = k < all->n_components ? all->prior : 0;
        leaves_out |= all->factor != NULL && k < all->n_components && theta[k] != theta[0];
    }
    for (ptrdiff_t j = 0; j < n; j++) {
        doc.total += count[j];
    }
    doc.total += all->n_components * all->prior;
    for (ptrdiff_t j = 0; all->rows != NULL && j < n; j += DPLDA_GROUP) {
        const ptrdiff_t m = n - j < DPLDA_GROUP ? n - j : DPLDA_GROUP;
        int16_t *group = copy + j * 8 * all->n_blocks;
        NAME(copy_group)(all, word + j, m, n - j, group);
        if (leaves_out) {
            NAME(leave_out)(all, word + j, count + j, m, theta, (int32_t *)rest, group);
        }
    }
    NAME(converge)(&doc, all->max_iter, all->tol, theta, rest);
    if (all->variational) {
        NAME(expectations_of)(&doc, theta, rest, rest + padded);
        memcpy(theta, rest + padded, padded * sizeof *theta);
    }
}
