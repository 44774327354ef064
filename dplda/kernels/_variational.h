/* The kernels of _variational.pyx, compiled for each instruction set. */
#ifndef DPLDA_SET
#ifndef DPLDA_VARIATIONAL_H
#define DPLDA_VARIATIONAL_H
#include "_clip.h"
#include "_digamma.h"
#define DPLDA_KERNEL "_variational.h"
#include "_each_set.h"
#endif
#else
#define REAL float
#include "_digamma.h"
#undef REAL
#include "_contributions.h"
#include "_fold_in.h"
#endif
