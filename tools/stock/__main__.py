"""`python -m tools.stock`."""

import sys

from tools.stock import main

sys.exit(main())
