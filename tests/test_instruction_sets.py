"""One switch for the instruction set of all kernels."""

import importlib
import pkgutil
import re
import shutil
import subprocess
import sys

import pytest

import dplda.kernels
from dplda.kernels import _sets

OF_A_SET = re.compile("_(avx2|avx512)")


def test_the_fastest_set_is_the_default():
    code = "from dplda.kernels import _sets; print(_sets.instruction_set())"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == _sets.INSTRUCTION_SETS[-1]


def test_any_set_of_the_machine_can_be_chosen(instruction_set):
    assert _sets.instruction_set() == instruction_set


def test_an_unknown_set_is_refused_and_changes_nothing(instruction_set):
    with pytest.raises(ValueError, match=r"must be one of \('portable'.*got 'avx1024'"):
        _sets.use("avx1024")
    assert _sets.instruction_set() == instruction_set


def test_no_kernel_has_a_switch_of_its_own():
    names = [module.name for module in pkgutil.iter_modules(dplda.kernels.__path__)]
    modules = [importlib.import_module(f"dplda.kernels.{name}") for name in names]
    assert [module for module in modules if hasattr(module, "use")] == [_sets]


def calls_out_of_a_set(disassembly):
    """Calls from the code of a set to functions of this kernel that belong to no set."""
    found = set()
    caller = ""
    for line in disassembly.splitlines():
        if function := re.match(r"[0-9a-f]+ <(\w+).*>:", line):
            caller = function[1]
        call = re.search(r"\s(?:call|jmp)q?\s+[0-9a-f]+ <([\w.]+)>$", line)
        if call and OF_A_SET.search(caller) and not OF_A_SET.search(call[1]):
            found.add((caller, call[1]))
    return found


def test_calls_out_of_a_set_are_seen():
    text = """
0000000000001000 <sweep_avx2>:
    1000:\tcall   2000 <take_out.isra.0>
    1005:\tcall   3000 <begin_avx2>
    100a:\tjmp    1000 <sweep_avx2+0x40>
    100f:\tcall   4000 <memset@plt>
0000000000005000 <sweep_portable>:
    5000:\tcall   2000 <take_out.isra.0>
"""
    assert calls_out_of_a_set(text) == {("sweep_avx2", "take_out.isra.0")}


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed")
@pytest.mark.skipif("avx2" not in _sets.INSTRUCTION_SETS, reason="no sets to choose from")
def test_the_code_of_a_set_calls_no_function_of_the_rest():
    """These would be float instructions without AVX: hundreds of cycles on some processors."""
    of_a_set, found = 0, {}
    for kernel in pkgutil.iter_modules(dplda.kernels.__path__):
        file = importlib.import_module(f"dplda.kernels.{kernel.name}").__file__
        command = ["objdump", "--disassemble", "--no-show-raw-insn", file]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        of_a_set += len(re.findall(r"<\w+_avx2\w*>:", text))
        if calls := calls_out_of_a_set(text):
            found[kernel.name] = calls
    if not of_a_set:
        pytest.skip("the kernels have no symbols")
    assert not found
