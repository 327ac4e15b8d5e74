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
# **Four questions, in this order.** Who is compared? What did tuning change, in which direction and by how much? Where do parties,
# topics and orientations differ? Can it be trusted?
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
p, made, frames = this_run.params, {}, {}  # tables and frames by name, for the last cells to write

# %% [markdown]
# ## 1 · Who is compared?
#
# Speeches and scores are joined by prompt, variant, model and type, never by position. Human speeches to the same prompts go
# through everything like a model: they are the yardstick that the paper lacks. Which rows count? The paper's rule is the strict
# one: a prompt stays only when *every* model answered it and the judge gave all six ratings to every answer. It makes models
# comparable, and it can bias the sample: hard prompts drop out. Below, the counts and one row in full.

# %%
from parliabench_utils.results.scores import generated, is_compared, join_scores, kept_prompts, present_sets

sets = present_sets(this_run.folder, p.models, p.types)
scores = join_scores(this_run.folder, sets, p.judge)
kept = kept_prompts(this_run.folder)
scores["compared"] = is_compared(scores, kept, p.missing)
counts = {"prompts": scores["prompt_id"].nunique(), "answered by all": len(kept)}
counts["compared"] = generated(scores).loc[lambda s: s["compared"], "prompt_id"].nunique()
this_run.note("prompts", counts)
print(f"{len(scores)} rows, {scores['generated_speech'].notna().sum()} with a speech; {counts}")
scores.iloc[0]

# %% [markdown]
# ### What is missing
#
# Self-BLEU needs a second look: notebook 05 took it among all valid speeches of a set, and it grows with their number. It is
# computed again among the compared speeches, as many to each prompt for every set; a speech without such partners has no value.
# First, 05's mean beside the one that the tables use. Then, metric by metric, how many speeches have no value (a rating that the
# judge did not give, a context without references), and of how many a metric's model read only the beginning.

# %%
from parliabench_utils.results import tables
from parliabench_utils.results.robustness import JOB_COLUMN, compared_self_bleu, run_settings
from parliabench_utils.results.scores import compared_rows, coverage

source, names = (this_run.stage_folder() / "scores.parquet",), tables.model_names(p.models)
group, max_n = run_settings(this_run.folder, sets)
scores = compared_self_bleu(scores, group, max_n)
rows, seen = compared_rows(scores), coverage(scores)
frames["scores.parquet"], made["coverage"] = scores, tables.coverage_display(seen, names, source)
print(f"Self-BLEU-{max_n} by {group}:")
print(rows.groupby(["model", "type"], sort=False)[[JOB_COLUMN, "Self-BLEU"]].agg(["mean", "count"]).round(3).to_string())
seen[(seen["missing"] > 0) | (seen["truncated"] > 0)].round(3)

# %% [markdown]
# ### Who drops out
#
# Selection can change the mix. With $O_g$ of the prompts of group $g$ kept and $E_g$ expected if every prompt were as likely to
# stay,
#
# $$ \chi^2 = \sum_g \frac{(O_g - E_g)^2}{E_g} + \sum_g \frac{(O_g - E_g)^2}{n_g - E_g}, $$
#
# for party, house, topic and all three crossed; $p$ comes from dealing out anew which prompts stay. Models decide what stays, as
# members always spoke; where models keep different prompts, each has its rows.

# %%
from parliabench_utils.results.robustness import composition

selection = composition(scores, p.bootstrap_draws, p.seed)
made["selection"] = tables.selection_display(selection, names, source)
print(selection.drop_duplicates(["model", "type", "by"])[["model", "type", "by", "chi2", "df", "p"]].round(3).to_string())
selection[selection["by"] == "Party"].drop(columns=["by", "chi2", "df", "p"]).round(3)

# %% [markdown]
# And the worst that could have happened: each missing value may be anything between the ends of its metric. Where even then the
# sign is certain, selection cannot have made the result.

# %%
from parliabench_utils.results.robustness import worst_case

bounds = frames["selection_bounds.csv"] = worst_case(scores)
bounds[bounds["metric"].isin(["PPL", "Dist-N", "Party Align", "J_Coh"])].round(3)

# %% [markdown]
# ## 2 · What did tuning change?
#
# The paper (section 6, Table 13) uses the pooled two-sample t-test, as if the two sides were different prompts, and Cohen's $d$:
#
# $$ t = \frac{\bar x_F - \bar x_B}{s_p \sqrt{1/n_F + 1/n_B}}, \qquad
#    s_p^2 = \frac{(n_B - 1)\, s_B^2 + (n_F - 1)\, s_F^2}{n_B + n_F - 2}, \qquad d = \frac{\bar x_F - \bar x_B}{s_p}. $$
#
# They are the same prompts, so the paired test fits, of the differences $\delta$ within a prompt: $t = \bar\delta /
# \mathrm{se}(\bar\delta)$ and $d = \bar\delta / s_\delta$. Intervals and paired tests allow for dependence within what
# `bootstrap_cluster` names. Whose mean is it? The `estimand` says: prompts as they were drawn, with small parties lifted; the
# corpus, where the prompts' weights undo that; or parties, each the same.
#
# Of $m$ planned tests (models times metrics) each counts by its Bonferroni $p$ (Table 13); an undefined test (every value the
# same) stays in the count:
#
# $$ p^{*} = \min(1,\; m\,p). $$
#
# Self-BLEU fits no t-test: each value depends on the other speeches of its pool. For it the two types change places within the
# pools, $R$ times, and the difference $\Delta$ is held against the permuted ones; so is its interval:
#
# $$ p = \frac{1 + \#\{r : |\Delta_r| \ge |\Delta|\}}{1 + R}. $$

# %%
from parliabench_utils.results.robustness import compare_permuted

drawing = {"draws": p.bootstrap_draws, "seed": p.seed, "cluster": p.bootstrap_cluster}
drawing |= {"estimand": p.estimand, "models": p.models}
comparison, permuted = compare_permuted(rows, group, max_n, **drawing)
made["table13"] = tables.table13(comparison, names, source)
frames |= {"comparison.csv": comparison, "self_bleu_permutation.csv": permuted}
made["table13"].display

# %% [markdown]
# ### Means, gains and declines (Table 2)
#
# Means and standard deviations of all sets with the number of valid values, marked by the test that `asterisk_test` names.
# *Better* knows the direction of a metric, and a decline that is significant is as much a finding as a gain. Printed first:
# what the numbers are of, over how many independent units, and the tests that the correction counts.

# %%
from parliabench_utils.results.scores import ESTIMANDS, RULES, cell_means
from parliabench_utils.results.statistics import verdict

comparison["verdict"] = verdict(comparison, p.asterisk_test, p.correction)
pairs, units = tables.span(comparison["n_effective"].round()), tables.span(comparison["n_clusters"])
print(f"{ESTIMANDS[p.estimand]} Effective n of the pairs: {pairs}; independent units ({p.bootstrap_cluster}): {units} a test")
print(f"Unpaired: {comparison['family'].iloc[0]}; paired: {comparison['paired_p_family'].iloc[0]}")
print(comparison["verdict"].replace("", "not significant").groupby(comparison["model"]).value_counts().unstack(fill_value=0))
how = {"test": p.asterisk_test, "correction": p.correction, "rule": RULES[p.missing], "inputs": source}
made["table02"] = tables.table02(cell_means(rows, estimand=p.estimand), comparison, names, **how)
made["table02"].display.set_index("Model").T

# %% [markdown]
# ### The other rule for missing values
#
# It keeps every speech; where the two tell different stories, selection is part of the result.

# %%
everything = scores.assign(compared=is_compared(scores, kept, "available"))
everything = compared_rows(compared_self_bleu(everything, group, max_n))
available, _ = compare_permuted(everything, group, max_n, **drawing)
frames |= {"comparison_available.csv": available, "cells_available.csv": cell_means(everything, estimand=p.estimand)}
both = comparison.merge(available, on=["model", "metric"], suffixes=("", "_available"))
both[["model", "metric", "n_pairs", "paired_difference", "n_pairs_available", "paired_difference_available"]].round(4)

# %% [markdown]
# ### By category (Figure 3)
#
# The fourteen metrics have different units. The paper puts them on $[0, 1]$ (section 4.2) without saying how; here, with 1 the
# good end, over all rows of the run (`normalisation`: or over fixed ranges),
#
# $$ \tilde x = \frac{x - \min x}{\max x - \min x}, \qquad \tilde x \leftarrow 1 - \tilde x \;\text{ where lower is better.} $$
#
# A category's change is the mean of $\tilde x_F - \tilde x_B$ over its metrics, within prompts.

# %%
from parliabench_utils.results.statistics import category_changes

changes = category_changes(rows, p.normalisation, p.bootstrap_cluster, p.estimand)
frames["category_changes.csv"] = changes
changes.round(3)

# %% [markdown]
# ### All models at once
#
# One model a metric, score ~ type × model, for the scores $y_i$ of all speeches to prompt $i$. Generalised estimating equations
# (Liang and Zeger 1986; not in the paper) let speeches to a prompt share $\rho$ of their variance $\phi$,
#
# $$ \sum_i D_i^\top V_i^{-1} (y_i - \mu_i) = 0, \qquad V_i = \phi\,\big[(1 - \rho)\, I + \rho\, J\big], $$
#
# with errors that hold where some models spread more than others. The first row of a metric is what fine-tuning does on average
# over the models, its last asks whether it does the same to each.

# %%
from parliabench_utils.results.robustness import mixed_models

mixed = mixed_models(rows, estimand=p.estimand)
made["mixed_model"] = tables.mixed_display(mixed, names, source)
mixed[mixed["term"] == "fine-tuned"][["metric", "estimate", "ci_low", "ci_high", "p", "sd_prompt", "sd_residual", "converged"]]

# %% [markdown]
# ## 3 · Where do parties and topics differ?
#
# Party Align of the tuned models by party and by topic (Eq. 3; Tables 8 and 11), human speeches beside them.

# %%
for column in ("Party", "Topic"):
    by_group = tables.alignment_by(rows, column, names, source, p.estimand)
    made[by_group.name] = by_group
made["table08"].display

# %% [markdown]
# ### How hard is a group to speak for? (Tables 9 and 10, Figures 5 and 7)
#
# The paper prints a difficulty without defining it. Ours is one minus the composite: of the normalised metrics $M$ that all
# groups have, the plain mean over metrics and models of their means in group $g$,
#
# $$ D_g = 1 - \frac{1}{|\mathrm{models}|\,|M|} \sum_{\mathrm{model}} \sum_{m \in M} \bar{\tilde x}_{m,\mathrm{model},g}. $$
#
# (A party without an orientation has no PSA; with PSA among the others' metrics it would rank apart for that alone.)
# Consistency is Eq. 4, below, over the models' composites.

# %%
from parliabench_utils.results.statistics import difficulty

hard = {column: difficulty(rows, column, p.normalisation, p.estimand) for column in ("Party", "Political Orientation", "Topic")}
for column in ("Party", "Political Orientation"):
    ranked = tables.difficulty_table(hard[column], column, source)
    made[ranked.name] = ranked
frames["topic_difficulty.csv"] = hard["Topic"]
hard["Party"]

# %% [markdown]
# ### Do the metrics tell groups apart?
#
# Section 13.2 announces an analysis of variance and prints none. Of $N$ speeches in $k$ groups, with sums of squares between
# and within groups,
#
# $$ F = \frac{SS_b / (k - 1)}{SS_w / (N - k)}, \qquad \eta^2 = \frac{SS_b}{SS_b + SS_w}. $$
#
# Beside each stands the control of notebook 06: the same speeches scored as *another* party's or orientation's. Where the control
# separates groups as well, it is not the party that the metric sees.

# %%
from parliabench_utils.results.statistics import anova_table

anova = anova_table(rows, p.normalisation)
made["anova"] = tables.anova_display(anova, names, source)
anova[anova["model"] == "all"].drop(columns=["model", "type"]).round(4)

# %% [markdown]
# ### Stability across contexts (Eq. 4, Table 12)
#
# How even a model is over parties, topics and orientations: of the group means of a normalised metric, with mean $\mu$ and
# standard deviation $\sigma$ over the groups,
#
# $$ \mathrm{Stability} = \frac{100}{1 + CV}, \qquad CV = \frac{\sigma}{\mu}. \tag{4} $$
#
# Small groups differ by chance alone. *By chance* deals the same speeches to groups of the same sizes at random: a stability near
# it says that the groups are small, not that the model is uneven. Speeches without an orientation are no group of their own.

# %%
from parliabench_utils.results.statistics import stability_by_metric, stability_table

by_metric = stability_by_metric(rows, p.normalisation, p.chance_draws, p.seed)
stable = stability_table(by_metric)
frames |= {"stability_by_metric.csv": by_metric, "stability.csv": stable}
made["table12"] = tables.table12(stable, names, p.normalisation, source)
made["table12"].display

# %% [markdown]
# ## 4 · Can it be trusted?
#
# ### Does a metric know human speech, and do the metrics agree?
#
# How often does a human speech score better than a generated one to the same prompt, ties counting half? One half is guessing.
# Rank correlations of the metrics are taken within each set and averaged: over all at once, two metrics that both rise with
# tuning would seem to agree.

# %%
from parliabench_utils.results.robustness import correlations, human_preference

preference = human_preference(rows, estimand=p.estimand)
frames |= {"human_preference.csv": preference, "correlations.csv": correlations(rows)}
preference.set_index("metric").round(3)

# %% [markdown]
# ### Do models repeat their training speeches?
#
# The longest run of words that a training speech has too, and shared n-grams. Members share set phrases with each other as well,
# so held-out human speeches are the yardstick. The table is of the compared speeches, since the longest run of more speeches is
# longer; the passages are of all.

# %%
from parliabench_utils.results.robustness import memorisation, memorisation_summary
from parliabench_utils.results.scores import training_speeches

copied = frames["memorisation.csv"] = memorisation(scores, training_speeches(this_run.folder))
memorised = memorisation_summary(copied[scores.loc[scores["generated_speech"].notna(), "compared"].to_numpy()])
train = (this_run.folder / "02_dataset/train.jsonl", *source)
made["memorisation"] = tables.memorisation_display(memorised, names, train)
for row in copied.sort_values("longest_run", ascending=False, kind="stable").head(5).itertuples():
    print(f"{row.model}, {row.type}: {row.longest_run} words: {row.longest_passage}")
memorised.round(3)

# %% [markdown]
# ### The paper against itself
#
# From the published tables alone, everything that can be recomputed is. The verdicts are computed, not written down: alter a
# published number and its verdict changes. Table 13 follows from Table 2: each $t$ and $d$ within what the rounding of the
# printed figures allows.

# %%
from parliabench_utils.results.paper import audit

findings = audit()
made["paper_audit"] = tables.audit_display(findings)
print(findings["agrees"].value_counts().to_string())
tests = findings[findings["item"] == "2 t-tests"]
print(f"t-tests: {(tests['agrees'] == 'yes').sum()} of {len(tests)} rows inside")
findings.loc[findings["agrees"] == "no", ["claim", "published", "recomputed"]].head(12)

# %% [markdown]
# ## Everything to files
#
# With Tables 1 and 3 to 7, which say what this run was, from the data and the resolved parameters rather than from memory; how
# fast and with how much memory the models generated here (`measured.json`: it differs from run to run, so it is no part of the
# tables); and the codebook, which lists every column of every CSV and parquet file of this run with its unit and source, for
# whoever goes on in R or in a spreadsheet.

# %%
made |= {table.name: table for table in tables.setup_tables(this_run.folder, p.models)}
beside = tables.paper_differences([made[name] for name in sorted(made)], source)
frames["measured.json"] = speed = tables.measured(this_run.folder, p.models)
made |= {beside.name: beside} if len(beside.data) else {}
tables.write_frames(this_run.stage_folder(), frames)  # first: the tables name the hash of scores.parquet
for table in made.values():
    tables.write_table(table, this_run.folder)
book = tables.codebook(this_run.folder)
tables.write_table(book, this_run.folder)
print(f"{len(made)} tables; {len(book.data)} columns in {book.data['file'].nunique()} kinds of files")
print(speed.round(1).to_string())
made["table05"].display

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
