"""`python -m parliabench_utils`."""

import sys

from parliabench_utils.cli import main

sys.exit(main())
