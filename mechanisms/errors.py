"""The two kinds of error that a user can act on.

Neither message ever holds a user id, a private value or a key: messages end up in
logs, and logs are read by people who must not learn them.
"""


class ParameterError(ValueError):
    """A parameter is wrong. The message says which one and what to change."""


class InputError(ValueError):
    """Input data or a file cannot be used. The message says where and what to change."""
