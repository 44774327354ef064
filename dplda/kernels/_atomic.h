/* Atomic numbers that threads share, in sequential order. */
#ifndef DPLDA_ATOMIC_H
#define DPLDA_ATOMIC_H
#include <stdint.h>

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
#endif
