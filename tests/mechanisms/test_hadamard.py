import numpy as np
import pytest
import scipy.linalg

from hadabeam.mechanisms import ParameterError, fwht, hadamard, hadamard_bits, least_power_of_two


@pytest.mark.parametrize(
    ("n", "power"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (1000, 1024), (2**30 + 1, 2**31)]
)
def test_least_power_of_two(n, power):
    assert least_power_of_two(n) == power


def test_no_power_of_two_for_zero():
    with pytest.raises(ParameterError):
        least_power_of_two(0)


@pytest.mark.parametrize("tile", [4, 16, 2**15])
@pytest.mark.parametrize("power", range(12))
def test_is_the_product_with_the_matrix(power, tile, monkeypatch):
    monkeypatch.setattr(hadamard, "TILE", tile)
    n = 2**power
    matrix = scipy.linalg.hadamard(n).astype(np.int64)
    generator = np.random.default_rng(power)
    small = generator.integers(-100, 100, n)
    large = generator.integers(-(2**51), 2**51, n)  # Too large for the path through floats.
    for x in (small, large):
        result = fwht(x)
        assert result.dtype == np.int64
        np.testing.assert_array_equal(result, matrix @ x)
    floats = fwht(small.astype(np.float64))
    assert floats.dtype == np.float64
    np.testing.assert_array_equal(floats, matrix @ small)


@pytest.mark.parametrize("power", [16, 17, 18, 20])
def test_large_sizes_by_rows_of_the_matrix(power):
    n = 2**power
    x = np.random.default_rng(power).integers(-1000, 1000, n)
    expected = []
    rows = [0, 1, 2, n // 2, n // 2 + 1, n - 1, 12345]
    for row in rows:
        signs = 2 * hadamard_bits(np.int64(row), np.arange(n)).astype(np.int64) - 1
        expected.append(int(signs @ x))
    assert fwht(x)[rows].tolist() == expected
    assert fwht(x.astype(np.float64))[rows].tolist() == expected


def test_twice_is_n_times_the_identity():
    x = np.random.default_rng(1).integers(-(2**20), 2**20, 2**17)
    np.testing.assert_array_equal(fwht(fwht(x)), x * 2**17)


def test_whole_numbers_beyond_the_floats_stay_exact():
    x = np.array([2**61, 1, 0, 0])
    assert fwht(x).tolist() == [2**61 + 1, 2**61 - 1, 2**61 + 1, 2**61 - 1]


def test_the_argument_survives_unless_overwriting_is_allowed():
    x = np.arange(8.0)
    fwht(x)
    np.testing.assert_array_equal(x, np.arange(8.0))
    assert fwht(x, overwrite=True) is x
    read_only = np.arange(8)
    read_only.flags.writeable = False
    assert fwht(read_only, overwrite=True)[0] == 28
    every_other = np.arange(16)[::2]
    assert fwht(every_other, overwrite=True)[0] == 56
    assert every_other[1] == 2


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32, ">i8"])
def test_other_numbers_are_converted(dtype):
    assert fwht(np.array([3, 1], dtype=dtype)).tolist() == [4, 2]


@pytest.mark.parametrize(
    "x", [np.zeros(3), np.zeros(0), np.zeros((2, 2)), np.array(["a", "b"]), np.zeros(2, bool)]
)
def test_refuses_what_it_cannot_transform(x):
    with pytest.raises(ParameterError):
        fwht(x)


def test_bits_are_the_signs_of_the_matrix():
    matrix = scipy.linalg.hadamard(64)
    bits = hadamard_bits(np.arange(64)[:, None], np.arange(64))
    assert bits.dtype == np.uint8
    np.testing.assert_array_equal(2 * bits.astype(int) - 1, matrix)


def test_bits_of_mixed_types_and_large_indices():
    rows, columns = np.array([2**30 + 1, 5], dtype=np.int32), np.array([2**30, 3], dtype=np.int64)
    assert hadamard_bits(rows, columns).tolist() == [0, 0]
