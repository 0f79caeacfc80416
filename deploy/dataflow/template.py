"""What the launcher of the Flex Template starts: ``hadabeam batch`` with its parameters.

The launcher passes each parameter as ``--name=value``, and flags of its own, such as where to
put the job that this builds. An empty parameter is one that was left out.
"""

import sys

from hadabeam.pipelines.batch import main

if __name__ == "__main__":
    sys.exit(main([flag for flag in sys.argv[1:] if not flag.endswith("=")]))
