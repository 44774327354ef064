"""Typed Cython kernels: functions of arrays only, nothing of the package is imported
here.
"""
