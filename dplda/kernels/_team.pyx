"""The threads that share the loops of the kernels; see ``_team.h``.

A kernel describes its loop by a struct, and a piece of the loop by a function of the struct and of
the numbers of the piece and of the thread. `run_pieces` calls this function for each piece, in
threads that `dplda.leaf._threads` starts.
"""

cdef extern from "_team.h" nogil:
    ctypedef void* sleeper "dplda_sleeper"
    sleeper new_sleeper "DPLDA_NEW_SLEEPER"()
    void c_run "dplda_run"(Piece run, void* arguments, Py_ssize_t n_pieces, int n_threads)
    void c_serve "dplda_serve"(sleeper own)
    void c_forget_team "dplda_forget_team"()


cells_of_piece = 16384


cdef void run_pieces(
    Piece piece, void* loop, Py_ssize_t n_pieces, int n_threads
) noexcept nogil:
    """Call `piece` once for each of the pieces, in at most `n_threads` threads."""
    c_run(piece, loop, n_pieces, n_threads)


cdef void call_piece(void* loop, Py_ssize_t piece, int thread) noexcept with gil:
    run, errors = <object>loop
    try:
        if not errors:
            run(piece)
    except BaseException as error:  # an interrupt, too
        errors.append(error)


def run_calls(run, Py_ssize_t n_pieces, int n_threads):
    """Call `run` with the number of each piece, in threads that take the lock of the interpreter.

    After an error no further call begins. The first error is raised when all calls have ended.
    """
    errors = []
    loop = run, errors
    with nogil:
        c_run(<Piece>call_piece, <void*>loop, n_pieces, n_threads)
    if errors:
        raise errors[0]


def use_pieces(cells):
    """Set the number of cells of a piece, for tests: it enters results. Return the old one."""
    global cells_of_piece
    before, cells_of_piece = cells_of_piece, cells
    return before


def serve():
    """Work on the pieces of all loops, forever, without the lock of the interpreter."""
    cdef sleeper own = new_sleeper()
    if own == NULL:
        raise MemoryError("the system has no lock for one more thread")
    with nogil:
        c_serve(own)


def forget_team():
    """Forget all threads: a forked process has none of them."""
    c_forget_team()
