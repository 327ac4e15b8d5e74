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
# # Study · Does the paper follow from its own tables?
#
# **Question.** Which of the paper's claims can be computed again from the tables that it prints, and which of those agree?
#
# **In the paper:** Tables 2 to 13 and what the abstract, sections 3 to 6, 9 and 13 and the project page say about them. **Reads:**
# `parliabench_utils/results/paper_tables/`: the tables as printed, and `claims.csv`, a row a claim; nothing of a run. **Writes:**
# `studies/paper_audit/verdicts.csv`. **Takes:** under a minute. Run by hand:
# `python -m parliabench_utils run studies/paper_audit --profile demo`.

# %% tags=["parameters"]
run = "demo"  # name of the folder under outputs/
profile = "demo"  # which parameter files were read
seed = 42  # not used here: nothing is drawn
data_root = "data"  # not used here; all notebooks share these keys
models = ["smollm2-135m", "smollm2-135m-nf4"]  # not used here: the models are the paper's
types = ["baseline", "fine-tuned"]  # not used here
n_threads = 2  # for numerical libraries
offline = True  # never ask a model hub

# %%
from parliabench_utils.run import start

this_run = start("paper_audit", globals())

# %% [markdown]
# ## Claims are data
#
# A row says what the paper claims and where, which kind of computation answers it with which table, rows and columns, and what must
# hold of the result. Braces take the computed quantities; a number may be off by the tolerance, half a unit of the last printed
# digit. Most claims are the t-tests, one a row of Table 13.

# %%
from parliabench_utils.results.paper import all_tables, audit, claims

book, tables, findings = claims(), all_tables(), audit()
print(book["kind"].value_counts().to_string())
book.loc[book["kind"] != "t_test", ["claim", "kind", "table", "rows", "columns", "holds", "tolerance", "recomputed"]].head(12)

# %% [markdown]
# ## Table 13 from Table 2: pooled t-tests
#
# With equal numbers of speeches a side, $n$, the pooled two-sample t-test and Cohen's $d$ of baseline $b$ and fine-tuned $f$ are
#
# $$ t = \frac{\bar x_f - \bar x_b}{\sqrt{(s_b^2 + s_f^2)\,/\,n}}, \qquad
# d = \frac{\bar x_f - \bar x_b}{\sqrt{(s_b^2 + s_f^2)\,/\,2}} $$
#
# The tests of one model, with the paper's own figures (`_13`) beside those from Table 2:

# %%
tests = tables["tests"]
llama = tests[tests["model"] == "Llama 3.1 8B"].set_index("metric")
llama[["mean_b", "mean_f", "sd_b", "sd_f", "n", "t", "t_13", "d", "d_13"]].round(3)

# %% [markdown]
# Table 2 has three decimals, so each of its figures stands for an interval, and so do $t$ and $d$. A row agrees when the printed
# values lie in the intervals of `recomputed`:

# %%
by_test = findings[book["kind"] == "t_test"]
print(f"{(by_test['agrees'] == 'yes').sum()} of {len(by_test)} rows agree")
by_test[["claim", "published", "recomputed", "agrees"]].head()

# %% [markdown]
# ### How many speeches a side?
#
# Both formulas have the same difference over the same spread, so that the rows of Table 13 give $n$ away:
#
# $$ t = d\,\sqrt{n/2} \quad\Rightarrow\quad n = 2\,(t/d)^2 $$
#
# For all metrics but two it is the tenth part of the rated speeches; for those two it is less, and the paper does not say so.

# %%
n = 2 * (tests["t_13"] / tests["d_13"]) ** 2
print(n.groupby(tests["metric"], sort=False).median().round(0).to_string())
findings.loc[book["kind"] == "sample_size", ["claim", "published", "recomputed", "agrees"]]

# %% [markdown]
# ### Which rows are listed, and which get an asterisk?
#
# After Bonferroni over $m$ comparisons a test is significant when $|t|$ is beyond the quantile of the t-distribution
#
# $$ |t| > t_{1 - 0.05/(2m),\; 2n - 2} $$

# %%
from scipy import stats

n_tests, n_side = len(tables["comparisons"]), int(tests["n"].max())
threshold = stats.t.isf(0.05 / (2 * n_tests), 2 * n_side - 2)
beyond = tables["comparisons"]["t"].abs() > threshold
print(f"threshold for {n_tests} comparisons: {threshold:.3f}")
print(f"{beyond.sum()} rows of Table 2 are beyond, {len(tests)} are listed in Table 13")
findings.loc[book["kind"] == "bonferroni", ["claim", "published", "recomputed", "agrees", "note"]]

# %% [markdown]
# ### The header of Table 2
#
# Table 2's values stand in the order of Table 1's computational metrics and then the judge's, but under names in another order.
# Its differences are Table 13's in the one order only:

# %%
findings.loc[book["kind"] == "header", ["claim", "published", "recomputed", "agrees", "note"]]

# %% [markdown]
# ## Counts: better, worse, not significant
#
# A claim of the kind "so many improve" is a count of comparisons. An improvement goes in the metric's good direction; what is
# listed in Table 13 and does not is a decline, which the paper leaves unmentioned.

# %%
import pandas as pd

changes = tables["comparisons"]
print(pd.crosstab(changes["model"], changes["change"], margins=True).to_string())
findings.loc[book["kind"] == "count", ["item", "claim", "published", "recomputed", "agrees"]]

# %% [markdown]
# ### Who is best?
#
# The best of the tuned models and the best of all, metric by metric; and the model that gains most in each category of metrics,
# by the sum over its significant rows of $d$ with the sign of the good direction:

# %%
findings.loc[book["kind"].isin(["winners", "categories"]), ["claim", "published", "recomputed", "agrees", "note"]]

# %% [markdown]
# ## Ends, ranks and shares of a column
#
# "The lowest", "from … to …", "that share of the speeches": a column's ends, the rank of a row, or its share of the sum. An
# orientation's score is the plain mean over its parties $P_o$ of Table 8's averages:
#
# $$ \bar A_o = \frac{1}{|P_o|} \sum_{p \in P_o} A_p $$

# %%
print(tables["orientations"].round(4).to_string(index=False))
print(tables["8"].set_index("party")["Yi 6B"].describe()[["min", "max"]].to_string())
findings.loc[book["kind"] == "column", ["claim", "published", "recomputed", "agrees"]]

# %% [markdown]
# ### The margins of Tables 8 and 11
#
# Average and sd of the $k$ models' scores; the sd is the one that divides by $k$:
#
# $$ \bar x = \frac{1}{k}\sum_{i} x_i, \qquad s = \sqrt{\frac{1}{k}\sum_{i} (x_i - \bar x)^2} $$

# %%
from parliabench_utils.results.paper import PAPER_MODELS, published

scores = published(8).set_index("party")
models_scores = scores[list(PAPER_MODELS)]
exact = pd.DataFrame({"mean": models_scores.mean(axis=1), "sd (k)": models_scores.std(axis=1, ddof=0)})
scores[["average", "sd"]].join(exact.round(4))

# %% [markdown]
# Where the models disagree, by topic: the claim names technical topics, which are in the lower half of the sds.

# %%
findings.loc[book["item"].isin(["30 margins", "27 disagreement"]), ["claim", "place", "published", "recomputed", "agrees", "note"]]

# %% [markdown]
# ### More speeches, better scores?
#
# Spearman's correlation is Pearson's of the ranks $r$, here of a party's average in Table 8 and its speeches in Table 3:
#
# $$ \rho = \frac{\operatorname{cov}(r_A, r_N)}{\sigma_{r_A}\,\sigma_{r_N}} $$

# %%
parties = published(8).merge(published(3), on="party")[["party", "average", "speeches"]]
ranks = parties[["average", "speeches"]].rank(ascending=False)
print(f"rho = {ranks['average'].corr(ranks['speeches']):.2f}")
findings.loc[book["kind"] == "correlation", ["claim", "published", "recomputed", "agrees"]]

# %% [markdown]
# ## Stability (Eq. 4)
#
# With $\mu$ and $\sigma$ the mean and sd of a model's means over groups,
#
# $$ \mathrm{Stability} = \frac{100}{1 + CV}, \qquad CV = \sigma / \mu $$
#
# Table 12 is said to be over all metrics, normalised in a way that is not stated. From Tables 8 and 11, which hold one of them:

# %%
from parliabench_utils.results.statistics import stability

means = {table: published(table)[list(PAPER_MODELS)] for table in (8, 11)}
eq4 = pd.DataFrame({f"Eq. 4 of Table {table}": frame.apply(stability) for table, frame in means.items()})
print(published(12).set_index("model").join(eq4.round(1)).to_string())
findings[book["kind"] == "stabilities"].groupby("item")["agrees"].value_counts().unstack(fill_value=0)

# %% [markdown]
# ### Difficulty and consistency (Tables 9 and 10)
#
# Neither is defined. If consistency $C$ were Eq. 4, the printed values would need
#
# $$ CV = 100 / C - 1 $$
#
# that is, sds several times the mean. And Table 10 repeats rows of Table 9 digit for digit.

# %%
nine = published(9).set_index("party")
print((100 / nine["consistency"] - 1).round(2).to_string())
findings.loc[book["kind"] == "difficulty", ["claim", "published", "recomputed", "agrees", "note"]]

# %% [markdown]
# ## Training: steps and warm-up (Tables 6 and 7)
#
# Two epochs of the training share of Table 3's $N$ speeches in batches of $B$, incomplete batches dropped:
#
# $$ \mathrm{steps} = 2 \left\lfloor \frac{0.8\,N}{B} \right\rfloor $$

# %%
setting = published(7).set_index("parameter")["value"]
total = published(3)["speeches"].sum()
print(f"2 x floor(0.8 x {total:,} / {setting['Batch Size']}) = {2 * int(total * 0.8 / int(setting['Batch Size'])):,}")
findings.loc[book["kind"].isin(["training", "quotient"]), ["claim", "place", "published", "recomputed", "agrees", "note"]]

# %% [markdown]
# ## What is PSA's distance factor worth to a guess? (Eq. 2)
#
# Eq. 2 multiplies a speech's similarity by $1 - |o - \hat o| / 12$, with $o$ and $\hat o$ places on the scale of orientations. With
# Table 3's shares $q$, a speaker of no politics who always says the same, $g$, or who draws from the shares, has on average
#
# $$ F_g = \sum_o q_o \left(1 - \frac{|o - g|}{12}\right), \qquad
# F_q = \sum_o \sum_{\hat o} q_o\, q_{\hat o} \left(1 - \frac{|o - \hat o|}{12}\right) $$

# %%
from parliabench_utils.corpus.people import ORIENTATION_SCALE

placed = published(3).assign(place=published(3)["orientation"].map(ORIENTATION_SCALE)).dropna(subset="place")
q = placed.groupby("place")["speeches"].sum() / placed["speeches"].sum()
always = {name: sum(q * (1 - abs(q.index - place) / 12)) for name, place in ORIENTATION_SCALE.items()}
print(pd.Series(always).round(3).to_string())
findings.loc[book["kind"] == "guessing", ["claim", "published", "recomputed", "agrees", "note"]]

# %% [markdown]
# ## Names that should be the same
#
# Lists that the paper prints more than once: topics in Tables 4 and 11, models in Tables 2 and 5.

# %%
findings.loc[book["kind"] == "lists", ["claim", "published", "recomputed", "agrees", "note"]]

# %% [markdown]
# ## What cannot be computed
#
# Some claims have no number behind them that is published, or two definitions. They are counted, not judged.

# %%
findings.loc[book["kind"] == "not computable", ["claim", "place", "published", "note"]]

# %% [markdown]
# ## Verdicts are computed
#
# Nobody wrote them down: with another number in a table the verdict is another. Here the speakers of Table 3 add up to what the
# text says:

# %%
altered = published(3)
altered.loc[0, "speakers"] -= altered["speakers"].sum() - int(book.loc[book["item"] == "11 speakers", "rows"].item())
both = pd.concat({"as printed": findings, "altered": audit({3: altered})}, names=["Table 3"]).reset_index("Table 3")
both.loc[both["item"] == "11 speakers", ["Table 3", "claim", "published", "recomputed", "agrees"]]

# %% [markdown]
# ## The verdicts
#
# First counted, t-tests apart because they are so many, then one by one.

# %%
kind = (findings["item"] == "2 t-tests").map({True: "t-tests", False: "all other claims"})
print(pd.crosstab(kind, findings["agrees"], margins=True, margins_name="all").to_string())
with pd.option_context("display.max_rows", None, "display.max_colwidth", 90):
    print(findings.loc[findings["item"] != "2 t-tests", ["item", "published", "recomputed", "agrees"]].to_string(index=False))

# %%
from parliabench_utils.run.artefacts import write_csv

write_csv(this_run.stage_folder() / "verdicts.csv", findings)
this_run.note("verdicts", findings["agrees"].value_counts().to_dict())

# %% [markdown]
# ## What we learned
#
# - Table 13 follows from Table 2 to the last digit that rounding allows, and its rows are those that survive Bonferroni: the
#   arithmetic of the main result can be trusted, once Table 2's header is put right.
# - What the text makes of the tables often cannot: declines are left out, ends of ranges are not the columns' ends, and what is
#   called stability or difficulty does not follow from anything that is printed.
#
# **Written:** `studies/paper_audit/verdicts.csv`. **Dropped:** nothing; claims that cannot be computed are listed. **Next:** the
# same comparison of means on your own run, in `08_statistics`.

# %%
this_run.finish()
