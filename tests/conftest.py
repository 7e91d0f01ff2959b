"""Shape and type checks of public signatures run under pytest only."""

from jaxtyping import install_import_hook

install_import_hook("ethogram", "beartype.beartype")
