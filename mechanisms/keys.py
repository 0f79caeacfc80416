"""Keys as references: what a pipeline may carry is where the key is, never the key."""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from .errors import InputError, ParameterError

KEY_BYTES = 32


@runtime_checkable
class Secret(Protocol):
    """Anything that fetches a key where it is needed, as Beam's ``Secret`` does."""

    def get_secret_bytes(self) -> bytes:
        """The secret (32 bytes, or their base64)."""
        ...


@dataclass(frozen=True)
class KeyFile:
    """A key in a file, known by its path. Only the path is pickled.

    Attributes:
      path: a file of exactly 32 bytes that exists on every worker (public).
    """

    path: str

    def __post_init__(self) -> None:
        path = os.fspath(self.path) if isinstance(self.path, os.PathLike) else self.path
        if not isinstance(path, str) or not path:
            raise ParameterError("a KeyFile needs the path of a file")
        object.__setattr__(self, "path", path)

    def read(self) -> bytes:
        """The key, 32 bytes (secret).

        Raises:
          InputError: if the file cannot be read or has another size.
        """
        try:
            with open(self.path, "rb") as file:
                key = file.read(KEY_BYTES + 1)
                size = max(len(key), os.fstat(file.fileno()).st_size)
        except OSError as error:
            # A new key in the place of one that is there would spend epsilon again.
            missing = isinstance(error, FileNotFoundError)
            hint = "make one with hadabeam keygen" if missing else "check its path and permissions"
            raise InputError(
                f"cannot read the key file {self.path}: {error.strerror}; {hint}"
            ) from None
        if len(key) != KEY_BYTES:
            raise InputError(
                f"the key file {self.path} has {size} bytes instead of {KEY_BYTES}; "
                "make one with hadabeam keygen"
            )
        return key

    @property
    def loose_permissions(self) -> bool:
        """Whether others than the owner may read or change the file; False if there is none."""
        try:
            return os.name == "posix" and bool(os.stat(self.path).st_mode & 0o077)
        except OSError:
            return False


def generate_key_file(path: str | os.PathLike[str]) -> KeyFile:
    """Writes 32 random bytes to a new file that only its owner can read (mode 0600).

    Raises:
      InputError: if the file exists (a key is never overwritten: the reports made with
        it could not be repeated) or cannot be written.
    """
    reference = KeyFile(os.fspath(path))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(reference.path, flags, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.urandom(KEY_BYTES))
    except FileExistsError:
        raise InputError(
            f"{reference.path} exists and is not overwritten; choose another name, "
            "or remove it if no report will be made with that key again"
        ) from None
    except OSError as error:
        raise InputError(f"cannot write the key file {reference.path}: {error.strerror}") from None
    return reference


def check_reference(source: object) -> None:
    """Raises ParameterError unless a key is given by reference; reads nothing."""
    if not isinstance(source, (KeyFile, Secret)):
        # Never the thing itself, which may be a key.
        raise ParameterError(
            "a key is given as KeyFile(path) or as a Secret with get_secret_bytes(), "
            f"not as {type(source).__name__}"
        )


def read_key(source: KeyFile | Secret) -> bytes:
    """The key behind a reference, 32 bytes (secret). Call it on the worker.

    Args:
      source: a :class:`KeyFile`, or anything with ``get_secret_bytes()`` that gives 32
        bytes, or the base64 text of 32 bytes (as Beam's generated secrets are).

    Raises:
      ParameterError: if it is neither. Bytes are refused, since whoever holds a key in
        a pipeline's fields has it pickled with them.
      InputError: if the key cannot be read or has another size.
    """
    check_reference(source)
    if isinstance(source, KeyFile):
        return source.read()
    key = source.get_secret_bytes()
    if isinstance(key, bytes) and len(key) == 44:
        try:
            key = base64.b64decode(key, altchars=b"-_", validate=True)
        except binascii.Error:
            key = b""
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise InputError(
            f"the secret is no key: it must be {KEY_BYTES} bytes, or their base64 text"
        )
    return key
