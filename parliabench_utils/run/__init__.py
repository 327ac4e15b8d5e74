"""How a notebook is run and recorded: parameters, seeds, provenance, artefacts and the runner.

Every notebook's third cell calls `start`, which validates the parameters, seeds, and opens the run's folder.
"""

from parliabench_utils.run.notebook import Run, start

__all__ = ["Run", "start"]
