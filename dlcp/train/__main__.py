"""`python -m dlcp.train` is `dlcp train`."""

import sys

from dlcp.train import main

if __name__ == "__main__":
    sys.exit(main())
