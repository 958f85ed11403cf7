"""What acphold costs and saves: each figure stands beside a peer's, measured in the same run.

`python -m bench` prints the table; `python -m bench --quick latency` one part of it, smaller.

Times drift by a factor of two on a shared machine, within minutes. So ours and the peer's are
taken in turns, round by round, and the ratio is the median of the ratios of the rounds.
"""

import tests
from tests.distributions import FOLDERS

# What tests and benchmarks share is beside the tests of all distributions.
tests.__path__ = [*tests.__path__, *(str(folder / "tests") for folder in FOLDERS.values())]
