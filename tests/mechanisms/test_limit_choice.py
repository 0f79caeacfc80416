"""The record that is kept of each user."""

import numpy as np
import pytest

from hadabeam.mechanisms.errors import ParameterError
from hadabeam.mechanisms.limit import PUBLIC_KEY, keep_one_per_user, priorities
from hadabeam.mechanisms.prf import Prf

PRF = Prf(bytes(range(32)))


def records(n, users, seed=0):
    rng = np.random.default_rng(seed)
    ids = PRF.pseudonyms([f"u{user}" for user in rng.integers(0, users, n)])
    return ids, rng.integers(0, 5, n), rng.integers(0, 10**15, n)


def kept_records(ids, values, times, keys=None, prf=PRF):
    rows = keep_one_per_user(prf, ids, values, times, keys)
    times = np.zeros(len(values), int) if times is None else times
    return {ids[row].tobytes(): (int(values[row]), int(times[row])) for row in rows}, len(rows)


def test_one_record_of_every_user_is_kept():
    ids, values, times = records(1000, 300)
    kept, number = kept_records(ids, values, times)
    assert number == len(kept) == len({row.tobytes() for row in ids})


def test_the_choice_does_not_depend_on_order_or_sharding():
    ids, values, times = records(2000, 200)
    whole, _ = kept_records(ids, values, times)
    rng = np.random.default_rng(1)
    for _ in range(10):
        order = rng.permutation(2000)
        assert kept_records(ids[order], values[order], times[order])[0] == whole
    merged = {}
    for shard in range(3):
        mask = ids[:, 0] % 3 == shard
        merged.update(kept_records(ids[mask], values[mask], times[mask])[0])
    assert merged == whole


def test_the_record_kept_has_the_least_hash():
    ids, values, times = records(500, 40)
    ranks = priorities(PRF, ids, values, times, None)
    kept, _ = kept_records(ids, values, times)
    for user, record in kept.items():
        mine = [row for row in range(500) if ids[row].tobytes() == user]
        best = min(mine, key=lambda row: tuple(ranks[row].tolist()))
        assert record == (values[best], times[best])


def test_the_hash_is_cmac_of_the_fields():
    ids, values, times = records(3, 3)
    context = PRF.context("limit")
    for row in range(3):
        fields = (int(values[row]).to_bytes(8, "little"), int(times[row]).to_bytes(8, "little"))
        block = PRF.cmac(context.block + ids[row].tobytes() + b"".join(fields))
        words = [int.from_bytes(block[at : at + 8], "little") for at in (0, 8)]
        assert priorities(PRF, ids, values, times, None)[row].tolist() == words


def test_users_who_share_half_a_pseudonym_are_two_users():
    ids = np.zeros((6, 16), np.uint8)
    ids[3:, 12] = 7
    kept, number = kept_records(ids, np.arange(6), np.arange(6))
    assert number == len(kept) == 2


def test_identical_records_count_once():
    ids, values, times = records(50, 50)
    twice = [np.concatenate([array, array]) for array in (ids, values, times)]
    assert kept_records(*twice)[0] == kept_records(ids, values, times)[0]


def test_the_choice_is_uniform_over_distinct_records():
    # 99 records of one value and 1 of another, without times: two distinct records. 4,000
    # users; 6 standard deviations of a fair coin: a false alarm in 5e8 choices of this key.
    users = 4000
    ids = np.repeat(PRF.pseudonyms([f"user {user}" for user in range(users)]), 10, axis=0)
    values = np.tile([0] * 9 + [1], users)
    kept, _ = kept_records(ids, values, None)
    rare = sum(value for value, _ in kept.values())
    assert abs(rare - users / 2) < 6 * np.sqrt(users) / 2


def test_keys_take_part_in_the_choice():
    ids = np.repeat(PRF.pseudonyms([f"user {user}" for user in range(200)]), 2, axis=0)
    values, times = np.zeros(400, int), np.zeros(400, int)
    keys = np.tile(PRF.pseudonyms(["kde", "kfr"]), (200, 1))
    rows = keep_one_per_user(PRF, ids, values, times, keys)
    chosen = rows % 2
    assert 50 < chosen.sum() < 150
    order = np.random.default_rng(3).permutation(400)
    again = order[keep_one_per_user(PRF, ids[order], values, times, keys[order])]
    assert sorted(again.tolist()) == sorted(rows.tolist())


def test_which_key_is_chosen_does_not_depend_on_the_values():
    # Nine records under one key and one under another; the nine are alike, or all differ.
    users = 2000
    ids = np.repeat(PRF.pseudonyms([f"user {user}" for user in range(users)]), 10, axis=0)
    keys = np.tile(PRF.pseudonyms(["ka"] * 9 + ["kb"]), (users, 1))
    chosen = []
    for values in ([0] * 10, list(range(10))):
        rows = keep_one_per_user(PRF, ids, np.tile(values, users), None, keys)
        chosen.append(dict(zip((rows // 10).tolist(), (rows % 10 == 9).tolist(), strict=True)))
    assert chosen[0] == chosen[1]
    # 6 standard deviations of a fair coin: a false alarm in 5e8 choices of this key.
    assert abs(sum(chosen[0].values()) - users / 2) < 6 * np.sqrt(users) / 2


def test_within_a_key_the_choice_is_uniform_over_distinct_records():
    users = 4000
    ids = np.repeat(PRF.pseudonyms([f"user {user}" for user in range(users)]), 10, axis=0)
    keys = np.tile(PRF.pseudonyms(["ka"]), (10 * users, 1))
    rows = keep_one_per_user(PRF, ids, np.tile([0] * 9 + [1], users), None, keys)
    # As above: two distinct records, six standard deviations.
    assert abs(np.count_nonzero(rows % 10 == 9) - users / 2) < 6 * np.sqrt(users) / 2


def test_another_key_makes_another_choice():
    ids, values, times = records(2000, 100)
    public = kept_records(ids, values, times, prf=Prf(PUBLIC_KEY))[0]
    assert public != kept_records(ids, values, times)[0]


def test_nothing_gives_nothing():
    empty = np.zeros((0, 16), np.uint8)
    assert len(keep_one_per_user(PRF, empty, np.zeros(0, int))) == 0


def test_arrays_of_different_lengths_are_refused():
    ids, values, times = records(10, 3)
    with pytest.raises(ParameterError, match="one row per record"):
        keep_one_per_user(PRF, ids, values[:-1], times)
