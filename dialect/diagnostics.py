"""How a verifier of this dialect reports, and how MLIR's errors become ours."""

from typing import Any


def require(op: Any, condition: bool, message: str) -> bool:
    """`condition`; where it is false, `message` is reported at the op, as MLIR's own verifiers do."""
    if not condition:
        op.location.emit_error(f"'{op.operation.name}' op {message}")
    return condition
