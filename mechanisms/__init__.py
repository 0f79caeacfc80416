"""The mathematics: oracles, keyed randomness, the transform and the estimators.

Needs NumPy and ``cryptography`` only, and never imports Beam or pyarrow.
"""

from .coins import Coins, KeyedCoins, SeededCoins, SystemCoins, flip_threshold
from .domain import Domain
from .errors import InputError, ParameterError
from .estimate import POST_PROCESSINGS, FrequencyEstimate, HeavyHitter
from .hadamard import fwht, hadamard_bits, least_power_of_two
from .keys import KeyFile, Secret, generate_key_file, read_key
from .one_bit import OneBitHadamard
from .oracle import MAX_EPSILON, MIN_EPSILON, FrequencyOracle, check_epsilon
from .prf import Context, Prf
from .registry import ORACLES, make_oracle
from .simplex import clip_frequencies, project_simplex

__all__ = [
    "MAX_EPSILON",
    "MIN_EPSILON",
    "ORACLES",
    "POST_PROCESSINGS",
    "Coins",
    "Context",
    "Domain",
    "FrequencyEstimate",
    "FrequencyOracle",
    "HeavyHitter",
    "InputError",
    "KeyFile",
    "KeyedCoins",
    "OneBitHadamard",
    "ParameterError",
    "Prf",
    "Secret",
    "SeededCoins",
    "SystemCoins",
    "check_epsilon",
    "clip_frequencies",
    "flip_threshold",
    "fwht",
    "generate_key_file",
    "hadamard_bits",
    "least_power_of_two",
    "make_oracle",
    "project_simplex",
    "read_key",
]
