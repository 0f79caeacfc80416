"""Keys in Secret Manager: by name only, and never in a message."""

import pickle
from types import SimpleNamespace

import pytest
from engines import installed

from hadabeam.mechanisms import keys
from hadabeam.mechanisms.errors import InputError, ParameterError
from hadabeam.pipelines import cloud_keys, extras, flag_types

NAME = "projects/p/secrets/coin/versions/3"
KEY = bytes(range(32))


@pytest.fixture
def service(monkeypatch):
    """The secret service, as far as keys need it."""
    installed("google.api_core", "gcp")
    asked = []

    def access_secret_version(name):
        asked.append(name)
        return SimpleNamespace(payload=SimpleNamespace(data=service.data))

    service = SimpleNamespace(access_secret_version=access_secret_version, data=KEY, asked=asked)
    monkeypatch.setattr(cloud_keys, "_client", lambda: service)
    monkeypatch.setattr(extras, "has", lambda module: True)
    return service


@pytest.mark.engines
def test_a_key_is_fetched_by_name_where_it_is_used(service):
    key = flag_types.key_file(f"gcpsecret:{NAME}")
    assert service.asked == []
    sent = pickle.dumps(key)
    assert KEY not in sent
    assert keys.read_key(pickle.loads(sent)) == KEY
    assert key.read() == KEY
    assert service.asked == [NAME, NAME]


@pytest.mark.engines
def test_a_secret_that_is_no_key_is_refused(service):
    service.data = b"canary"
    with pytest.raises(InputError, match="32 bytes") as error:
        flag_types.key_file(f"gcpsecret:{NAME}").read()
    assert "canary" not in str(error.value)


@pytest.mark.parametrize("name", ["coin", NAME.replace("/3", "/latest"), NAME + "/x", ""])
def test_names_of_another_form_are_refused(name):
    with pytest.raises(ParameterError, match="number of a version"):
        cloud_keys.CloudKey(name)


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setattr(extras, "has", lambda module: False)
    with pytest.raises(ParameterError, match=r"hadabeam\[gcp\]"):
        cloud_keys.CloudKey(NAME)
