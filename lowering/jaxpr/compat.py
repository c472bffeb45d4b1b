"""Everything private to JAX that this package uses, in one place.

Supported: jax 0.11.2 and 0.12.x.  Nothing here imports the MLIR bindings.
"""

from __future__ import annotations

from typing import Any

from jax._src import source_info_util


def user_frame(source_info: Any) -> Any:
    """The innermost frame of user code (file_name, start_line, start_column, function_name), or None."""
    return source_info_util.user_frame(source_info.traceback)
