"""ParliaBench: an open benchmark of language models that speak in the UK Parliament.

Five rooms follow the paper: `run` (how a thing is run and recorded), `corpus` (section 3), `models` (section 5), `metrics`
(section 4) and `results` (section 6). The notebooks in `notebooks/` tell the story; `python -m parliabench_utils` runs them.
"""

__version__ = "0.1.0"
