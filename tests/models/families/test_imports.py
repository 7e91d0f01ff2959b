"""The blocks alone, as users of numpyro may take them."""

import subprocess
import sys


def test_families_import_no_other_subpackage():
    code = (
        "import sys, ethogram.models.families\n"
        "print(*(name for name, module in sys.modules.items()"
        " if name.startswith('ethogram') and hasattr(module, '__path__')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) == {"ethogram", "ethogram.models", "ethogram.models.families"}
