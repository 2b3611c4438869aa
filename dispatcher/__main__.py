"""`python -m dispatcher` is the command `dispatcher`."""

from __future__ import annotations

import sys

from dispatcher.cli import main

sys.exit(main())
