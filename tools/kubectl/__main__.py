"""`python -m tools.kubectl`."""

import sys

from tools.kubectl import main

sys.exit(main())
