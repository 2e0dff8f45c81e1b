"""`python -m dlcp` is the `dlcp` command."""

import sys

if __name__ == "__main__":
    from dlcp.cli import main

    sys.exit(main())
