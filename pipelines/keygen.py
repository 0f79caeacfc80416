"""``hadabeam keygen FILE``: makes a key file."""

from __future__ import annotations

from ..mechanisms.keys import generate_key_file
from .flags import DONE, CommandParser
from .guard import guarded

_EXAMPLES = """
  hadabeam keygen assignment.key
      A key that fixes each user's column. The edge and the collector hold it.

  hadabeam keygen coin.key
      A key that fixes each user's coins. Only the edge holds it.

Use both:
  hadabeam batch --assignment_key assignment.key --coin_key coin.key ...
"""


def _parser() -> CommandParser:
    parser = CommandParser(
        "keygen",
        "Makes a key file: 32 random bytes that only you may read (mode 0600).\n\n"
        "With keys, the same records give the same reports however often a job runs, and a\n"
        "second run spends no privacy budget. The two keys must differ, and whoever has the\n"
        "coin key can tell the true bits from the reports: keep it where the logs are.",
        _EXAMPLES,
        takes_beam_flags=False,
    )
    parser.add_argument("file", metavar="FILE", help="the file to make; must not exist yet")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit code (0, 1 if the file cannot be made)."""
    args = _parser().parse_args(argv)

    def make() -> int:
        generate_key_file(args.file)
        print(f"Wrote a new key to {args.file} (32 bytes, mode 0600). Back it up; keep it secret.")
        return DONE

    return guarded("hadabeam keygen", make)


if __name__ == "__main__":
    raise SystemExit(main())
