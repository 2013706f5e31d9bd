"""What the `sbx` command runs (see console.sh): put the installation on the path and go."""

import sys

sys.path.append(__file__[: -len("/sbx/launch/console.py")].replace("/bin/../", "/"))

from sbx.__main__ import main

main()
