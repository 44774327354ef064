"""Typed Cython kernels: functions of arrays only, independent of the package.

Nothing of the package is imported here.
"""
