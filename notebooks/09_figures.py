# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 09 · Figures and the report
#
# **Question.** What does the run look like at a glance, and what must a reader know before believing it?
#
# **In the paper:** Figures 1 to 8; s1 to s4 are ours. **Reads:** the dataset (02), `08_statistics/` and `tables/`. **Writes:**
# each figure in `figures/` as PDF and PNG with its values as CSV and a JSON that names its inputs; `release/`, the generated
# speeches in the paper's format; `report.html`, one file that needs no network. **Takes:** under a minute.

# %% tags=["parameters"]
run = "demo"  # name of the folder under outputs/
profile = "demo"  # which parameter files were read
seed = 42  # draws the speeches that the report holds, where the run has more
data_root = "data"  # not used here; all notebooks share these keys
models = ["smollm2-135m", "smollm2-135m-nf4"]  # rows of the tables, in this order; the paper: five models (section 5.1)
types = ["baseline", "fine-tuned"]  # what is compared with what
n_threads = 2  # for numerical libraries
offline = True  # never ask a model hub
judge = "smollm2-constrained"  # the judge that the report's warnings are about; the paper: Flow-Judge-v0.1
browser_prompts = 24  # most prompts whose speeches the report holds; the demo has fewer

# %%
from parliabench_utils.run import start

this_run = start("09_figures", globals())

# %% [markdown]
# ## The pipeline and the corpus (Figures 1 and 2)
#
# Figure 1 is drawn from the workflow's own graph: which notebook waits for which.

# %%
from pathlib import Path

from parliabench_utils.results.figures import fig1, fig2, fig3, fig4, fig5, fig6, fig7, fig8, s1, s2, s3, s4, show
from parliabench_utils.run.stages import __file__ as stages

show(fig1((Path(stages),)), this_run.folder)

# %% [markdown]
# Figure 2: how long speeches are, what they are about, who gives them, and when.

# %%
from parliabench_utils.results.tables import dataset_files, read_dataset

show(fig2(read_dataset(this_run.folder), dataset_files(this_run.folder)), this_run.folder)

# %% [markdown]
# Most speeches are short, a few topics take most of the speeches, and the parties are far from equal in number. That is why
# groups carry their *n* in every figure below.
#
# ## What fine-tuning changes (Figures 3 and s2)

# %%
import pandas as pd

from parliabench_utils.models.specs import read_model_spec
from parliabench_utils.results.report import demo_note, model_names
from parliabench_utils.run.artefacts import read_csv

names = model_names(this_run.params.models)
note = demo_note([read_model_spec(model) for model in this_run.params.models])
statistics = this_run.stage_folder("08_statistics")

# %%
source = statistics / "category_changes.csv"
show(fig3(read_csv(source), names, note, (source,)), this_run.folder)

# %% [markdown]
# A point right of zero is a gain; an interval that crosses zero is no finding. Metric by metric:

# %%
source = statistics / "comparison.csv"
show(s2(read_csv(source), names, note, (source,)), this_run.folder)

# %% [markdown]
# ## Parties (Figures 4 and 5)

# %%
source = this_run.folder / "tables/table08.csv"
show(fig4(read_csv(source), note, (source,)), this_run.folder)

# %% [markdown]
# Compare each model's column with the one of the members' own speeches: a model cannot be expected to sound more like a party than
# its members do.
#
# And how hard is each party to speak for, by all metrics together? The definition is ours, and it is printed below the bars.

# %%
source = this_run.folder / "tables/table09.csv"
show(fig5(read_csv(source), note, (source,)), this_run.folder)

# %% [markdown]
# ## Topics (Figures 6 and 7)

# %%
source = this_run.folder / "tables/table11.csv"
show(fig6(read_csv(source), note, (source,)), this_run.folder)

# %% [markdown]
# The same question for topics:

# %%
source = statistics / "topic_difficulty.csv"
show(fig7(read_csv(source), note, (source,)), this_run.folder)

# %% [markdown]
# ## Orientations and stability (Figures 8 and s1)

# %%
from parliabench_utils.results.release import parameter_of_08
from parliabench_utils.results.scores import compared_rows, generated

source = statistics / "scores.parquet"
rows = compared_rows(pd.read_parquet(source))
show(fig8(rows, names, note, (source,), parameter_of_08(this_run.folder, "estimand")), this_run.folder)

# %% [markdown]
# Stability asks how even a model is over such groups. Read the points against the black mark, not against 100.

# %%
source = statistics / "stability.csv"
show(s1(read_csv(source), names, note, (source,)), this_run.folder)

# %% [markdown]
# The black mark is what chance alone gives with groups of these sizes.
#
# ## Can the judge be trusted? (Figures s3 and s4)

# %%
source = statistics / "correlations.csv"
show(s3(read_csv(source), note, (source,)), this_run.folder)

# %% [markdown]
# Each correlation is taken within a set and averaged. Agreement among dimensions may only mean that one mood colours all six. The
# harder test is whether a score knows a human speech from a generated one:

# %%
source = statistics / "human_preference.csv"
show(s4(read_csv(source), note, (source,)), this_run.folder)

# %% [markdown]
# A metric whose interval crosses the dashed line cannot tell a member's speech from a model's.
#
# ## What others can use
#
# All generated speeches in the paper's format, marked as AI-generated, with a card; and of each model and type the best, the median
# and the worst by composite, which is the plain mean of all normalised metrics.

# %%
from parliabench_utils.results import release
from parliabench_utils.results.report import model_rows, warnings

how = release.parameter_of_08(this_run.folder, "normalisation")
scores = release.with_composite(pd.read_parquet(statistics / "scores.parquet"), how)
specs = [read_model_spec(model) for model in this_run.params.models]
caution = warnings(this_run.folder, specs, this_run.params.judge, generated(rows)["prompt_id"].nunique())
release.write_release(this_run.folder, scores, names, model_rows(specs), caution)
release.representative(scores)[["model", "type", "role", "composite", "Party", "Topic", "generated_speech"]]

# %% [markdown]
# Read a best one beside a worst one: does the composite put them in the order in which you would?
#
# ## The report
#
# Headline, figures, tables, a browser for the speeches, what was dropped and why, and every place where this run differs from the
# paper's set-up.

# %%
from parliabench_utils.results.report import headline, write_report

write_report(
    this_run.folder,
    scores,
    profile=this_run.params.profile,
    models=this_run.params.models,
    judge=this_run.params.judge,
    browser_prompts=this_run.params.browser_prompts,
    seed=this_run.params.seed,
)
print(headline(this_run.folder))

# %% [markdown]
# ## What we learned
#
# - Each picture is drawn for the width at which it is printed, has its numbers beside it (`figures/*.csv`) and names the files that
#   it was drawn from.
# - The report opens with its warnings; a headline number without them is not ours.
#
# **Written:** `figures/`, `release/` and `report.html`. **Dropped:** nothing here; the report lists what earlier stages left out.
# **Next:** open the report, find the best and the worst speech for one party, then try `--profile small` on a real corpus.

# %%
this_run.finish()
