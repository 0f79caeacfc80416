"""What the launcher of the Flex Templates starts: hadabeam with the template's parameters.

The launcher passes each parameter as ``--name=value``, each once, and flags of its own, such
as where to put the job that this builds. An empty parameter is one that was left out.
"""

import sys

from hadabeam.pipelines.cli import main


def command_line(parameters: list[str]) -> list[str]:
    """The words of hadabeam's command line for what the launcher passes.

    Two parameters are no flags: ``command`` is what the image runs (batch, if left out), and
    ``table`` a second output, in BigQuery.
    """
    command, words = "batch", []
    for parameter in parameters:
        name, given, value = parameter.partition("=")
        if given and not value:
            continue
        if name == "--command":
            command = value
        elif name == "--table":
            words.append(f"--output=bigquery:{value}")
        else:
            words.append(parameter)
    return [command, *words]


if __name__ == "__main__":
    sys.exit(main(command_line(sys.argv[1:])))
