cdef int in_use  # index in INSTRUCTION_SETS; kernels read it at every call
