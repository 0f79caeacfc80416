"""The jobs behind the ``hadabeam`` command."""
