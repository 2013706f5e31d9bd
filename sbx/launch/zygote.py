"""What the library executes to get its launcher (see warm): put the installation on the path and serve."""

import sys

sys.path.append(__file__[: -len("/sbx/launch/zygote.py")])

from sbx.launch.warm import main

main(int(sys.argv[1]), int(sys.argv[2]))
