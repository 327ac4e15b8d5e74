"""The scores of a made-up run, for the tests that only read them."""

import pytest

from parliabench_utils.results.scores import join_scores
from tests.results.synthetic import SETS, write_run


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="session")
def scores(run_folder):
    return join_scores(run_folder, SETS, "smollm2-constrained")
