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
# # 08 · Statistics: does fine-tuning help, and is the difference more than chance?
#
# **Question.** Which of the fourteen metrics change with fine-tuning, in which direction, by how much, and where do parties,
# topics and orientations differ?
#
# **In the paper:** sections 4.2 and 6, appendix 13, Tables 2 and 8 to 13. **Reads:** the dataset (02), the speeches (04) and the
# scores of 05, 06 and 07. **Writes:** `08_statistics/scores.parquet` (everything joined) and the frames behind the figures; in
# `tables/`, as CSV, LaTeX, HTML and JSON, Tables 1 to 13, `anova`, `mixed_model`, `selection`, `memorisation`, `paper_audit` and
# `codebook`, which says what every column of the run means. **Takes:** under a minute in the demo.

# %% tags=["parameters"]
run = "demo"  # name of the folder under outputs/
profile = "demo"  # which parameter files were read
seed = 42  # of the bootstrap and of all permutations
data_root = "data"  # not used here; all notebooks share these keys
models = ["smollm2-135m", "smollm2-135m-nf4"]  # rows of the tables, in this order; the paper: five models (section 5.1)
types = ["baseline", "fine-tuned"]  # what is compared with what
n_threads = 2  # for numerical libraries
offline = True  # never ask a model hub
judge = "smollm2-constrained"  # whose ratings count; the paper: Flow-Judge-v0.1 (section 10)
missing = "complete"  # only prompts that all answered and that are fully rated (section 5.3); or available
asterisk_test = "paired"  # which test marks Table 2; the paper: pooled (Table 13)
correction = "bonferroni"  # over all models x metrics (Table 13); or holm, bh
bootstrap_draws = 2000  # permutations of the tests and draws of intervals; the paper gives no intervals
bootstrap_cluster = "prompt_id"  # what counts as independent: prompt_id, context_id, sitting_id or speaker_id
estimand = "prompts"  # what a mean is of: prompts as drawn; corpus, as in the test set; or parties, each the same
normalisation = "run"  # min-max of each metric over the run; or fixed ranges. The paper: not stated (section 4.2)
chance_draws = 200  # permutations for the stability that chance alone gives

# %%
from parliabench_utils.run import start

this_run = start("08_statistics", globals())

# %% [markdown]
# ## One row a speech
#
# Speeches and scores are joined by prompt, variant, model and type, never by position. Human speeches to the same prompts go
# through everything like a model: they are the yardstick that the paper lacks.

# %%
from parliabench_utils.results.scores import join_scores, kept_prompts, present_sets

scores = join_scores(
    this_run.folder, present_sets(this_run.folder, this_run.params.models, this_run.params.types), this_run.params.judge
)
print(f"{len(scores)} rows, {scores['generated_speech'].notna().sum()} with a speech, {scores['prompt_id'].nunique()} prompts")
scores.iloc[0]

# %% [markdown]
# Above is one row in full. Which rows count? The paper's rule is the strict one: a prompt stays only when *every* model answered
# it and the judge gave all six ratings to every answer. It makes models comparable, and it can bias the sample: hard prompts drop
# out.

# %%
from parliabench_utils.results.scores import compared_rows, generated, is_compared

kept = kept_prompts(this_run.folder)
scores["compared"] = is_compared(scores, kept, this_run.params.missing)
counts = {
    "prompts": scores["prompt_id"].nunique(),
    "answered by all": len(kept),
    "compared": generated(scores).loc[lambda s: s["compared"], "prompt_id"].nunique(),
}
this_run.note("prompts", counts)
counts

# %% [markdown]
# Self-BLEU needs a second look: notebook 05 took it among all valid speeches of a set, and it grows with their number. What is
# compared must come from the same prompts, so it is computed again among the compared speeches, as many of each prompt for every
# set; a speech without such partners has no value. Below, 05's mean beside the one that the tables use.

# %%
from parliabench_utils.results.robustness import JOB_COLUMN, compared_self_bleu, run_settings

sets = present_sets(this_run.folder, this_run.params.models, this_run.params.types)
group, max_n = run_settings(this_run.folder, sets)
scores = compared_self_bleu(scores, group, max_n)
rows = compared_rows(scores)
print(f"Self-BLEU-{max_n} by {group}; speeches with a comparable value: {rows['Self-BLEU'].notna().sum()} of {len(rows)}")
rows.groupby(["model", "type"], sort=False)[[JOB_COLUMN, "Self-BLEU"]].agg(["mean", "count"]).round(3)

# %%
from parliabench_utils.run.artefacts import write_csv, write_parquet

write_parquet(this_run.stage_folder() / "scores.parquet", scores)

# %% [markdown]
# ## What is missing
#
# A mean is one of the values that there are. How many speeches have none (a rating that the judge did not give, a context without
# references), and of how many did a metric's model read only the beginning?

# %%
from parliabench_utils.results.scores import coverage

seen = coverage(scores)
seen[(seen["missing"] > 0) | (seen["truncated"] > 0)].round(3)

# %% [markdown]
# ## Who drops out?
#
# Selection can change the mix. The parties before and after, and a test of "every prompt is as likely to stay" for party, house,
# topic and all three crossed; its p comes from dealing out anew which prompts stay. Models decide what stays, as members always
# spoke; where models keep different prompts, each has its rows.

# %%
from parliabench_utils.results.robustness import composition, worst_case

selection = composition(scores, this_run.params.bootstrap_draws, this_run.params.seed)
selection[selection["by"] == "Party"].drop(columns=["by", "chi2", "df", "p"]).round(3)

# %%
selection.drop_duplicates(["model", "type", "by"])[["model", "type", "by", "chi2", "df", "p"]].round(3)

# %% [markdown]
# And the worst that could have happened: each missing value may be anything between the ends of its metric. Where even then the
# sign is certain, selection cannot have made the result.

# %%
bounds = worst_case(scores)
bounds[bounds["metric"].isin(["PPL", "Dist-N", "Party Align", "J_Coh"])].round(3)

# %% [markdown]
# ## Baseline against fine-tuned
#
# The paper uses the pooled two-sample t-test, as if the two sides were different prompts. They are the same, so the paired test
# fits. Self-BLEU fits neither: each value depends on the other speeches of its pool. For it the types change places within the
# pools, many times, and the real difference is held against those; so is its interval.

# %%


# %% [markdown]
# All comparisons, with an interval and three corrections. Whose mean is it? The estimand says: prompts as they were drawn, with small
# parties lifted; the corpus, where the prompts' weights undo that; or parties, each the same. Intervals and paired tests allow for
# dependence within what `bootstrap_cluster` names. *Better* knows the direction of a metric.

# %%
from parliabench_utils.results.robustness import compare_permuted

drawing = {
    "draws": this_run.params.bootstrap_draws,
    "seed": this_run.params.seed,
    "cluster": this_run.params.bootstrap_cluster,
}
drawing |= {"estimand": this_run.params.estimand, "models": this_run.params.models}
comparison, permuted = compare_permuted(rows, group, max_n, **drawing)
shown = ["n_pairs", "n_effective", "paired_difference", "ci_low", "ci_high", "paired_p_bonferroni", "paired_direction"]
comparison[["model", "metric", *shown]].round(4)

# %% [markdown]
# What the numbers are of, over how many independent units, and how many tests the correction counts. An undefined test (every value
# the same) stays in the count: the family is what was planned.

# %%
from parliabench_utils.results.scores import ESTIMANDS

print(ESTIMANDS[this_run.params.estimand])
print(
    f"independent: {this_run.params.bootstrap_cluster}, {comparison['n_clusters'].min()} to {comparison['n_clusters'].max()} a test"
)
print(f"effective n of the pairs: {comparison['n_effective'].min():.1f} to {comparison['n_effective'].max():.1f}")
print(f"unpaired: {comparison['family'].iloc[0]}; paired: {comparison['paired_p_family'].iloc[0]}")

# %% [markdown]
# Gains and declines, by the test that marks Table 2. A decline that is significant is as much a finding as a gain.

# %%
from parliabench_utils.results.statistics import verdict

comparison["verdict"] = verdict(comparison, this_run.params.asterisk_test, this_run.params.correction)
comparison["verdict"].replace("", "not significant").groupby(comparison["model"]).value_counts().unstack(fill_value=0)

# %% [markdown]
# ## Tables 2 and 13
#
# Means and standard deviations of all sets with the number of valid values, then every test, significant or not.

# %%
from parliabench_utils.results import tables
from parliabench_utils.results.report import model_names
from parliabench_utils.results.scores import cell_means

names = model_names(this_run.params.models)
source = (this_run.stage_folder() / "scores.parquet",)
rule = {"complete": "Only prompts that all models answered and that are fully rated.", "available": "All speeches."}
table02 = tables.table02(
    cell_means(rows, estimand=this_run.params.estimand),
    comparison,
    names,
    test=this_run.params.asterisk_test,
    correction=this_run.params.correction,
    rule=rule[this_run.params.missing],
    inputs=source,
)
table02.display.set_index("Model").T

# %%
table13 = tables.table13(comparison.drop(columns="verdict"), names, source)
table13.display.head(14)

# %% [markdown]
# The other rule for missing values keeps every speech; where the two tell different stories, selection is part of the result.

# %%
everything = scores.assign(compared=is_compared(scores, kept, "available"))
everything = compared_rows(compared_self_bleu(everything, group, max_n))
available, _ = compare_permuted(everything, group, max_n, **drawing)
both = comparison.merge(available, on=["model", "metric"], suffixes=("", "_available"))
both[["model", "metric", "n_pairs", "paired_difference", "n_pairs_available", "paired_difference_available"]].round(4)

# %% [markdown]
# ## All models at once
#
# One model a metric: score ~ type * model, with what speeches to one prompt share, and errors that hold where some models spread
# more than others. Its first row is what fine-tuning does on average over the models, its last asks whether it does the same to each.

# %%
from parliabench_utils.results.robustness import mixed_models

mixed = mixed_models(rows, estimand=this_run.params.estimand)
mixed[mixed["term"] == "fine-tuned"][["metric", "estimate", "ci_low", "ci_high", "p", "sd_prompt", "sd_residual", "converged"]]

# %% [markdown]
# ## By party, topic and orientation (Tables 8 to 11)
#
# Party Align of the tuned models, and our difficulty: one minus the mean of the normalised metrics that all groups have. (A party
# without an orientation has no PSA; with PSA among the others' metrics it would rank apart for that alone.) The paper prints a
# difficulty without defining it.

# %%
from parliabench_utils.results.statistics import difficulty

by_party, by_topic = (tables.alignment_by(rows, column, names, source, this_run.params.estimand) for column in ("Party", "Topic"))
by_party.display

# %%
hard = {
    c: difficulty(rows, c, how=this_run.params.normalisation, estimand=this_run.params.estimand)
    for c in ("Party", "Political Orientation", "Topic")
}
difficulty_tables = [tables.difficulty_table(hard[c], c, source) for c in ("Party", "Political Orientation")]
hard["Party"]

# %% [markdown]
# ## Do the metrics tell groups apart?
#
# Section 13.2 announces an analysis of variance and prints none. Beside each stands the control of notebook 06: the same speeches
# scored as *another* party's or orientation's. Where the control separates groups as well, it is not the party that the metric sees.

# %%
from parliabench_utils.results.statistics import anova_table

anova = anova_table(rows, this_run.params.normalisation)
anova[anova["model"] == "all"].drop(columns=["model", "type"]).round(4)

# %% [markdown]
# ## Stability across contexts (Eq. 4, Table 12)
#
# Small groups differ by chance alone. *By chance* deals the same speeches to groups of the same sizes at random: a stability near
# it says that the groups are small, not that the model is uneven. Speeches without an orientation are no group of their own.

# %%
from parliabench_utils.results.statistics import stability_by_metric, stability_table

by_metric = stability_by_metric(rows, this_run.params.normalisation, this_run.params.chance_draws, this_run.params.seed)
table12 = tables.table12(stability_table(by_metric), names, this_run.params.normalisation, source)
table12.display

# %% [markdown]
# ## Does a metric know human speech, and do the metrics agree?
#
# How often does a human speech score better than a generated one to the same prompt? One half is guessing. Rank correlations of the
# metrics are taken within each set and averaged: over all at once, two metrics that both rise with tuning would seem to agree.

# %%
from parliabench_utils.results.robustness import correlations, human_preference

preference = human_preference(rows, estimand=this_run.params.estimand)
agreement = correlations(rows)
preference.set_index("metric").round(3)

# %% [markdown]
# ## Do models repeat their training speeches?
#
# The longest run of words that a training speech has too, and shared n-grams. Members share set phrases with each other as well,
# so held-out human speeches are the yardstick. The table is of the compared speeches, since the longest run of more speeches is
# longer; the passages below are of all.

# %%
from parliabench_utils.results.robustness import memorisation, memorisation_summary
from parliabench_utils.results.scores import training_speeches

copied = memorisation(scores, training_speeches(this_run.folder))
memorised = memorisation_summary(copied[scores.loc[scores["generated_speech"].notna(), "compared"].to_numpy()])
memorised.round(3)

# %%
for row in copied.sort_values("longest_run", ascending=False, kind="stable").head(5).itertuples():
    print(f"{row.model}, {row.type}: {row.longest_run} words: {row.longest_passage}")

# %% [markdown]
# ## Tables 1 and 3 to 7: what this run was
#
# Metrics, parties, topics, models and settings, from the data and the resolved parameters rather than from memory.

# %%
from parliabench_utils.models.specs import read_model_spec

dataset, files = tables.read_dataset(this_run.folder), tables.dataset_files(this_run.folder)
specs = [read_model_spec(model) for model in this_run.params.models]
setup = [tables.table01(), tables.table03(dataset, files), tables.table04(dataset, files), tables.table05(specs, ())]
setup += tables.training_tables(this_run.folder)
setup[1].display

# %% [markdown]
# How fast and with how much memory the models generated here; this differs from run to run, so it is no part of the tables.

# %%
from parliabench_utils.run.artefacts import write_json

speed = tables.measured(this_run.folder, this_run.params.models)
write_json(this_run.stage_folder() / "measured.json", speed.to_dict("records"))
speed.round(1)

# %% [markdown]
# ## The paper against itself
#
# From the published tables alone, everything that can be recomputed is. The verdicts are computed, not written down: alter a
# published number and its verdict changes.

# %%
from parliabench_utils.results.paper import audit

findings = audit()
print(findings["agrees"].value_counts().to_string())
findings.loc[findings["agrees"] == "no", ["claim", "published", "recomputed"]].head(12)

# %% [markdown]
# Table 13 follows from Table 2: each t and d within what the rounding of the printed figures allows. The rows outside:

# %%
tests = findings[findings["item"] == "2 t-tests"]
print(f"{(tests['agrees'] == 'yes').sum()} of {len(tests)} rows inside")
tests.loc[tests["agrees"] != "yes", ["claim", "published", "recomputed"]]

# %% [markdown]
# ## Everything to files

# %%
scored = [table02, by_party, *difficulty_tables, by_topic, table12, table13]
train = (this_run.folder / "02_dataset/train.jsonl", *source)
checks = [
    tables.anova_display(anova, names, source),
    tables.mixed_display(mixed, names, source),
    tables.coverage_display(seen, names, source),
    tables.selection_display(selection, names, source),
    tables.memorisation_display(memorised, names, train),
    tables.audit_display(findings),
]
beside = tables.paper_differences(scored, source)
for table in [*setup, *scored, *checks, *([beside] if len(beside.data) else [])]:
    tables.write_table(table, this_run.folder)

# %%
from parliabench_utils.results.figures import category_changes

changes = category_changes(rows, this_run.params.normalisation, this_run.params.bootstrap_cluster, this_run.params.estimand)
frames = {
    "comparison": comparison,
    "category_changes": changes,
    "stability_by_metric": by_metric,
    "correlations": agreement,
}
frames |= {"human_preference": preference, "topic_difficulty": hard["Topic"], "stability": stability_table(by_metric)}
frames |= {
    "comparison_available": available,
    "cells_available": cell_means(everything, estimand=this_run.params.estimand),
    "memorisation": copied,
}
frames |= {"self_bleu_permutation": permuted, "selection_bounds": bounds}
for name, frame in frames.items():
    write_csv(this_run.stage_folder() / f"{name}.csv", frame)

# %% [markdown]
# Whoever goes on in R or in a spreadsheet needs to know what a column means. The codebook lists every column of every CSV and parquet
# file of this run, with its unit and source.

# %%
from parliabench_utils.results.tables import codebook

book = codebook(this_run.folder)
tables.write_table(book, this_run.folder)
print(f"{len(book.data)} columns in {book.data['file'].nunique()} kinds of files")
book.data[book.data["file"].str.startswith("06")].head(8)

# %% [markdown]
# ## What we learned
#
# - A comparison of means needs its direction, its *n* and its declines; Table 2 marks gains with an asterisk and declines with a
#   dagger.
# - The same prompts for all models call for the paired test. With few prompts hardly anything survives the correction, and the
#   tables say so.
# - Stability and difficulty depend on how metrics are normalised and on the sizes of groups; chance alone stands beside them.
# - A control, a permutation or people stand beside every claim: wrong centroids, dealt groups, held-out speeches.
#
# **Written:** `08_statistics/` and `tables/`. **Dropped:** the prompts that `counts` above lists, by the rule `missing`.
# **Next:** 09 draws the figures and writes the report.

# %%
this_run.finish()
