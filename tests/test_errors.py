"""The errors themselves: their classes, their message, and the traceback that ends at the kernel."""

from __future__ import annotations

import traceback

import pytest

from mosaic_gpu import errors
from mosaic_gpu.errors import KernelError, SourceLine, UnsupportedError, ends_at_kernel

SOURCE = SourceLine(__file__, 7, "kernel")


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("KernelError", ValueError),
        ("UnsupportedError", NotImplementedError),
        ("ToolError", RuntimeError),
        ("SimulationError", RuntimeError),
        ("InternalError", RuntimeError),
    ],
)
def test_each_class_is_one_of_pythons_and_of_the_package(name: str, base: type[Exception]) -> None:
    error = getattr(errors, name)("wrong")
    assert isinstance(error, base)
    assert isinstance(error, errors.MosaicGpuError)


def test_a_message_says_what_got_expected_and_what_to_do_and_ends_with_the_line() -> None:
    error = KernelError("too big", got=3, expected="at most 2", hint="use less", source=SOURCE)
    lines = ["too big", "  got: 3", "  expected: at most 2", "  what to do: use less", f"  at {__file__}:7 in kernel"]
    assert str(error).splitlines() == lines


def test_values_that_are_false_are_shown() -> None:
    assert str(KernelError("wrong", got=0, expected=False)) == "wrong\n  got: 0\n  expected: False"


def test_the_first_line_that_is_filled_in_stays() -> None:
    error = KernelError("wrong")
    assert error.at(None).source is None
    assert error.at(SOURCE).at(SourceLine("other.py", 1)).source == SOURCE
    assert str(error).endswith("test_errors.py:7 in kernel")


def test_a_traceback_ends_at_the_kernels_line() -> None:
    @ends_at_kernel
    def check() -> None:
        raise UnsupportedError("no", source=SOURCE)

    with pytest.raises(UnsupportedError) as caught:
        check()
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.lineno, last.name) == (__file__, 7, "kernel")
    assert last.line == "import pytest"


def test_errors_without_a_line_and_errors_of_others_pass_unchanged() -> None:
    @ends_at_kernel
    def check(error: Exception) -> None:
        raise error

    for error in (KernelError("no line"), ValueError("another's")):
        with pytest.raises(type(error)) as caught:
            check(error)
        assert caught.value is error
        assert traceback.extract_tb(error.__traceback__)[-1].name == "check"


def test_the_cause_of_an_error_is_kept() -> None:
    @ends_at_kernel
    def check() -> None:
        try:
            raise OSError("disk")
        except OSError as cause:
            raise KernelError("wrong", source=SOURCE) from cause

    with pytest.raises(KernelError) as caught:
        check()
    assert isinstance(caught.value.__cause__, OSError)
