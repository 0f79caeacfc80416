"""The mathematics: oracles, keyed randomness, the transform and the estimators.

Needs NumPy and ``cryptography`` only, and never imports Beam or pyarrow.
"""

from .coins import Coins, KeyedCoins, SeededCoins, SystemCoins, flip_threshold
from .domain import Domain
from .errors import InputError, ParameterError
from .estimate import POST_PROCESSINGS, FrequencyEstimate, HeavyHitter
from .hadamard import fwht, hadamard_bits, least_power_of_two
from .hadamard_response import HadamardResponse
from .keys import KeyFile, Secret, generate_key_file, read_key
from .one_bit import OneBitHadamard
from .oracle import MAX_EPSILON, MIN_EPSILON, FrequencyOracle, check_epsilon
from .prf import Context, Prf
from .public_coin import PublicCoinHadamardResponse, PublicCoinRandomizedResponse
from .randomized_response import RandomizedResponse
from .rappor import Rappor
from .registry import ORACLES, make_oracle
from .simplex import clip_frequencies, project_simplex
from .subset_selection import SubsetSelection
from .two_stage import TwoStageCoins, TwoStageOneBit
from .unperturbed_one_bit import UnperturbedOneBit

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
    "HadamardResponse",
    "HeavyHitter",
    "InputError",
    "KeyFile",
    "KeyedCoins",
    "OneBitHadamard",
    "ParameterError",
    "Prf",
    "PublicCoinHadamardResponse",
    "PublicCoinRandomizedResponse",
    "RandomizedResponse",
    "Rappor",
    "Secret",
    "SeededCoins",
    "SubsetSelection",
    "SystemCoins",
    "TwoStageCoins",
    "TwoStageOneBit",
    "UnperturbedOneBit",
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
