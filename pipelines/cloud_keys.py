"""Keys that are kept by a cloud's secret service, and read on the workers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..mechanisms.errors import InputError, ParameterError
from . import extras

#: How the flag of such a key begins.
BEGINNING = "gcpsecret:"
_NAME = re.compile(r"projects/[^/]+/secrets/[^/]+/versions/[0-9]+")


@dataclass(frozen=True)
class CloudKey:
    """A version of a secret of Google Secret Manager, by name; the pipeline holds the name only.

    Attributes:
      path: ``projects/PROJECT/secrets/NAME/versions/NUMBER`` (public). A number: "latest"
        would change the key in mid-job when a version is added.

    Raises:
      ParameterError: if the name has another form, or the extra is not installed.
    """

    path: str

    #: A secret has no mode that others might read it by.
    loose_permissions = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.path):
            raise ParameterError(
                f"a key in Secret Manager is written {BEGINNING}projects/PROJECT/secrets/NAME/"
                "versions/NUMBER, with the number of a version"
            )
        extras.need(f"keys that begin with {BEGINNING}", "google.cloud.secretmanager", "gcp")

    def get_secret_bytes(self) -> bytes:
        """The key, from the service.

        Raises:
          InputError: if the service does not give it. The message names the secret.
        """
        from google.api_core import exceptions

        try:
            answer = _client().access_secret_version(name=self.path)
        except exceptions.GoogleAPICallError as error:
            raise InputError(
                f"cannot read the secret {self.path} ({type(error).__name__}); the workers' "
                "service account needs the role Secret Manager Secret Accessor"
            ) from None
        return bytes(answer.payload.data)

    def read(self) -> bytes:
        """The checked key, as :meth:`hadabeam.mechanisms.keys.KeyFile.read`."""
        from ..mechanisms.keys import read_key

        return read_key(self)


def _client() -> Any:
    from google.cloud import secretmanager

    return secretmanager.SecretManagerServiceClient()
