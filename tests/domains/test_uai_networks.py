"""The bundled queries."""

from __future__ import annotations

import pytest

from ethogram.domains import uai_networks


@pytest.mark.parametrize("name", list(uai_networks.KNOWN))
def test_embedded_queries(name):
    query, known = uai_networks.load(name), uai_networks.KNOWN[name]
    assert len(query.map_variables) >= 71
    assert known.log_probability < 0
    with pytest.raises(ValueError, match="name must be '50-12-5'"):
        uai_networks.load("nothing")
