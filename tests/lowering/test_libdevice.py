"""libdevice, one function at a time."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from mosaic_gpu.errors import InternalError, ToolError
from mosaic_gpu.lowering import libdevice
from mosaic_gpu.lowering.libdevice import link_libdevice
from mosaic_gpu.lowering.targets import TARGETS

TARGET = TARGETS["sm_90a"]


def _linked(*names: str) -> llvm.ModuleRef:
    context = llvm.create_context()
    module = llvm.parse_assembly("\n".join(f"declare float @{name}(float)" for name in names), context)
    link_libdevice(module, context, TARGET)
    return module


def test_a_declared_function_gets_its_definition() -> None:
    module = _linked("__nv_expf", "__nv_sinf", "other")
    defined = {f.name for f in module.functions if not f.is_declaration}
    assert defined == {"__nv_expf", "__nv_sinf"}


def test_questions_about_the_build_are_answered() -> None:
    assert "__nvvm_reflect" not in str(_linked("__nv_expf", "__nv_sqrtf", "__nv_logf"))


def test_a_linked_function_goes_away_once_it_is_inlined() -> None:
    function = _linked("__nv_expf").get_function("__nv_expf")
    assert function.linkage.name == "linkonce_odr"
    assert any(b"alwaysinline" in attributes for attributes in function.attributes)


def test_a_function_that_libdevice_lacks_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="__nv_nonesuch"):
        _linked("__nv_nonesuch")


def test_without_libdevice_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libdevice, "find_libdevice", lambda: None)
    with pytest.raises(ToolError, match="pip install nvidia-nvvm"):
        _linked("__nv_expf")
