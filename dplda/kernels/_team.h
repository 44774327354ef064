/* A team of threads that run the pieces of loops, without the lock of the interpreter.
 *
 * The thread that begins a loop works on it, too. It waits for a thread that works on a piece, and
 * never for one that has not come yet: on a busy machine the others may be late. A thread without
 * work looks for some during SPIN, in which the next loop of a fit begins, and sleeps then. To wake
 * it takes as long as many a loop does.
 *
 * A processor may flush floats below the normal ones to zero: a library that was built with
 * -ffast-math sets this for the thread that loads it. Threads take over the mode of the thread that
 * begins the loop, so that passes over the same numbers see the same floats. Sensitivities rest on
 * that.
 */
#ifndef DPLDA_TEAM_H
#define DPLDA_TEAM_H
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifndef DPLDA_TEAM_LOCKS /* a test brings its own */
#include <Python.h>
typedef PyThread_type_lock dplda_sleeper;
#define DPLDA_NEW_SLEEPER() PyThread_allocate_lock()
#define DPLDA_SLEEP(sleeper) PyThread_acquire_lock(sleeper, WAIT_LOCK)
#define DPLDA_WAKE(sleeper) PyThread_release_lock(sleeper)
#endif

#if defined(_WIN32)
#define NOMINMAX
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#define DPLDA_YIELD() SwitchToThread()
#else
#include <sched.h>
#define DPLDA_YIELD() sched_yield()
#endif

/* Atomic numbers, in sequential order: all threads see all their changes in one order, and what a
 * thread wrote before a change is seen by who reads the changed number. */
#if defined(__GNUC__)
typedef int64_t dplda_atomic;
#define DPLDA_LOAD(x) __atomic_load_n(x, __ATOMIC_SEQ_CST)
#define DPLDA_STORE(x, value) __atomic_store_n(x, value, __ATOMIC_SEQ_CST)
#define DPLDA_ADD(x, value) __atomic_fetch_add(x, value, __ATOMIC_SEQ_CST)
#define DPLDA_SWAP(x, value) __atomic_exchange_n(x, value, __ATOMIC_SEQ_CST)
#else /* MSVC */
#include <intrin.h>
typedef volatile __int64 dplda_atomic;
#define DPLDA_LOAD(x) _InterlockedOr64(x, 0)
#define DPLDA_STORE(x, value) ((void)_InterlockedExchange64(x, value))
#define DPLDA_ADD(x, value) _InterlockedExchangeAdd64(x, value)
#define DPLDA_SWAP(x, value) _InterlockedExchange64(x, value)
#endif

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#define DPLDA_PAUSE() _mm_pause()
static inline uint64_t dplda_float_mode(void) { return _mm_getcsr(); }
static inline void dplda_set_float_mode(uint64_t mode) { _mm_setcsr((unsigned)mode); }
#elif defined(__aarch64__) && defined(__GNUC__)
#define DPLDA_PAUSE() __asm__ volatile("yield")
static inline uint64_t dplda_float_mode(void) {
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
static inline void dplda_set_float_mode(uint64_t mode) {
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
}
#else
#define DPLDA_ONE_THREAD /* how to read the mode is not known here */
#define DPLDA_PAUSE() ((void)0)
static inline uint64_t dplda_float_mode(void) { return 0; }
static inline void dplda_set_float_mode(uint64_t mode) { (void)mode; }
#endif

#define DPLDA_SPIN 0.0002      /* seconds */
#define DPLDA_BEFORE_YIELD 512 /* pauses of a thread that waits for another one */

/* `thread` is below `n_threads`, and no two threads of a loop have the same one. */
typedef void (*dplda_piece)(void *loop, ptrdiff_t piece, int thread);

/* A loop, in the frame of the thread that began it. */
typedef struct dplda_loop {
    dplda_piece run;
    void *arguments;
    ptrdiff_t n_pieces;
    uint64_t float_mode;
    dplda_atomic next;    /* the first piece that no thread has taken */
    dplda_atomic inside;  /* threads at work other than the first; changes under the lock */
    int n_wanted;         /* threads that may join; under the lock */
    struct dplda_loop *after;
} dplda_loop;

typedef struct dplda_member {
    dplda_sleeper sleeper;
    struct dplda_member *after;
} dplda_member;

static struct {
    dplda_atomic locked;
    dplda_atomic n_open;  /* loops that want threads; changes under the lock */
    dplda_loop *open;     /* under the lock */
    dplda_member *asleep; /* under the lock */
} dplda_team;

static void dplda_wait(int *n_pauses) {
    if (++*n_pauses < DPLDA_BEFORE_YIELD) {
        DPLDA_PAUSE();
    } else {
        DPLDA_YIELD(); /* the other one may need this processor */
    }
}

static void dplda_lock(void) {
    int n_pauses = 0;
    /* Who gets 0 sees all that the last holder wrote before it stored that 0. */
    while (DPLDA_SWAP(&dplda_team.locked, 1)) {
        dplda_wait(&n_pauses);
    }
}

static void dplda_unlock(void) {
    DPLDA_STORE(&dplda_team.locked, 0);
}

/* No thread joins the loop any more. The caller holds the lock. */
static void dplda_close(dplda_loop *loop) {
    dplda_loop **place = &dplda_team.open;
    while (*place != NULL && *place != loop) {
        place = &(*place)->after;
    }
    if (*place == loop) {
        *place = loop->after;
        DPLDA_ADD(&dplda_team.n_open, -1);
    }
}

static void dplda_work(dplda_loop *loop, int thread) {
    ptrdiff_t piece;
    /* One atomic step reads the number and raises it: no two threads get one piece. */
    while ((piece = (ptrdiff_t)DPLDA_ADD(&loop->next, 1)) < loop->n_pieces) {
        loop->run(loop->arguments, piece, thread);
    }
}

/* Run all pieces of a loop, in at most `n_threads` threads. */
static void dplda_run(dplda_piece run, void *arguments, ptrdiff_t n_pieces, int n_threads) {
    dplda_loop loop = {run, arguments, n_pieces, dplda_float_mode(), 0, 0, n_threads - 1, NULL};
    dplda_member *asleep = NULL, *member;
    int n_pauses = 0;
    if (n_pieces < n_threads) {
        loop.n_wanted = (int)n_pieces - 1;
    }
#ifdef DPLDA_ONE_THREAD
    loop.n_wanted = 0;
#endif
    if (loop.n_wanted <= 0) {
        dplda_work(&loop, 0);
        return;
    }
    dplda_lock();
    loop.after = dplda_team.open, dplda_team.open = &loop;
    DPLDA_ADD(&dplda_team.n_open, 1);
    for (int i = 0; i < loop.n_wanted && dplda_team.asleep != NULL; i++) {
        member = dplda_team.asleep, dplda_team.asleep = member->after;
        member->after = asleep, asleep = member;
    }
    dplda_unlock();
    while ((member = asleep) != NULL) {
        asleep = member->after; /* read before the member runs, which may change it */
        DPLDA_WAKE(member->sleeper);
    }
    dplda_work(&loop, 0);
    dplda_lock();
    dplda_close(&loop);
    /* The others' results are complete, and `loop` may go: each left under this lock, after its last
     * piece, and since `dplda_close` none can join. */
    while (DPLDA_LOAD(&loop.inside)) {
        dplda_unlock();
        dplda_wait(&n_pauses);
        dplda_lock(); /* who leaves holds it, and has done with the loop when it is free */
    }
    dplda_unlock();
}

/* Join a loop that wants threads, as its `thread`; NULL: none does. The caller holds the lock. */
static dplda_loop *dplda_join(int *thread) {
    dplda_loop *loop = dplda_team.open;
    if (loop != NULL) {
        DPLDA_ADD(&loop->inside, 1);
        *thread = loop->n_wanted--;
        if (loop->n_wanted == 0) {
            dplda_close(loop);
        }
    }
    return loop;
}

static double dplda_now(void) {
#if defined(_WIN32)
    LARGE_INTEGER ticks, second;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&second);
    return (double)ticks.QuadPart / (double)second.QuadPart;
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#endif
}

/* Whether a loop wants threads, or begins to within SPIN. */
static int dplda_look(void) {
    const double begin = dplda_now();
    do {
        for (int i = 0; i < 64; i++) {
            if (DPLDA_LOAD(&dplda_team.n_open)) {
                return 1;
            }
            DPLDA_PAUSE();
        }
    } while (dplda_now() - begin < DPLDA_SPIN);
    return 0;
}

/* The life of a thread of the team. */
static void dplda_serve(dplda_sleeper sleeper) {
    dplda_member self = {sleeper, NULL};
    DPLDA_SLEEP(sleeper); /* a lock is given out awake */
    for (;;) {
        int thread = 0;
        const int found = dplda_look();
        dplda_lock();
        dplda_loop *loop = dplda_join(&thread);
        if (loop == NULL && !found) {
            self.after = dplda_team.asleep, dplda_team.asleep = &self;
            dplda_unlock();
            DPLDA_SLEEP(sleeper);
            continue;
        }
        dplda_unlock();
        if (loop != NULL) {
            dplda_set_float_mode(loop->float_mode); /* before any piece: one mode for one loop */
            dplda_work(loop, thread);
            dplda_lock();
            DPLDA_ADD(&loop->inside, -1);
            dplda_unlock();
        }
    }
}

/* In a forked process: it has none of the threads, and the lock may have been theirs. */
static void dplda_forget_team(void) {
    DPLDA_STORE(&dplda_team.locked, 0);
    DPLDA_STORE(&dplda_team.n_open, 0);
    dplda_team.open = NULL, dplda_team.asleep = NULL;
}
#endif
