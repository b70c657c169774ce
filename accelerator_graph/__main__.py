"""Where ``python -m accelerator_graph`` and the script ``accelerator-graph`` begin."""

import sys

from ._cli.command import main

if __name__ == "__main__":
    sys.exit(main())
