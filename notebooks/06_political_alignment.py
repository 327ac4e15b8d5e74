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
# # 06 · Does a speech sound like its party?
#
# **Question.** How near is a speech to what its party's members say, and to its place between left and right? And,
# before we believe the answer: does such a nearness measure politics at all?
#
# **In the paper:** section 4.1.1, Eqs. 1 to 3; the columns PSA and Party Align of Table 2.
# **Reads:** the speeches of 04; the centroids that 02 made from training speeches; train and test speeches for the
# test of the metric. **Writes:** `06_political_alignment/<model>/<type>.parquet`, a row a speech, signatures beside
# it, and `summary/validation.csv`. **Takes:** a minute in the demo.

# %% tags=["parameters"]
run = "demo"  # name of the folder under outputs/
profile = "demo"  # which parameter files were read
seed = 42  # folds and shuffled labels of the validation
data_root = "data"  # not used here; all notebooks share these keys
models = ["smollm2-135m", "smollm2-135m-nf4"]  # whose speeches are scored; the paper: five (Table 5)
types = ["baseline", "fine-tuned"]  # each before and after tuning (section 5.3)
n_threads = 2  # for the encoder
offline = True  # never ask a model hub
model = ""  # one model only (the runner's --model); empty: all
type = ""  # one type only (the runner's --type); empty: all
shard = -1  # not used: a job scores all shards of its model and type
encoder = "all-MiniLM-L6-v2"  # as in 02, which made the centroids. The paper: all-mpnet-base-v2 (project page)
long_text = "chunk"  # long speeches: "chunk" and average, or "cut" as sentence-transformers does
leave_out = "prompt"  # centroids without the prompt's debate and speaker, for members and models alike; or "none"
folds = 5  # of the validation's cross-validation
shuffles = 79  # deals of labels by lot, with folds and centroids made anew; 39, 79, 119 ... make exact 95 % ranges
bootstrap_draws = 500  # samples of prompts, for the intervals of PSA and guessing
validation_speeches = 1000  # at most so many human speeches test the metric

# %%
from parliabench_utils.run import start

this_run = start("06_political_alignment", globals())
p = this_run.params

# %% [markdown]
# ## Centroids: the average speech of a party
#
# An encoder turns each speech into a unit vector $e(s)$. A party's centroid is the direction of the mean of its *training*
# speeches $S_p$; the same for the orientations on the scale:
#
# $$ c_p = \frac{\sum_{s \in S_p} e(s)}{\big\lVert \sum_{s \in S_p} e(s) \big\rVert}, \qquad \mathrm{sim}(s, c) = e(s)^\top c $$
#
# 02 kept sums for each party, debate, speaker and topic, so that we can take the debate and the speaker of a prompt out of the
# centroids that its speeches are scored against, exactly and without embedding anything again. Members and models meet the same
# centroids: if the member's own words stayed in for the models alone, their values would not compare.

# %%
import pandas as pd

from parliabench_utils.metrics.alignment import read_centroids
from parliabench_utils.models.embeddings import SentenceEncoder

sentences = SentenceEncoder(p.encoder, p.long_text)
store = read_centroids(this_run.stage_folder("02_dataset") / "shared")
if store.encoder != sentences.signature:
    raise ValueError(f"the centroids were made with {store.encoder}, not {sentences.signature}: make 02 and 06 agree")
pd.Series(store.counts("Party"), name="training speeches").sort_values(ascending=False).to_frame()

# %% [markdown]
# How near are the centroids to each other? All members speak the same parliamentary English, so the large parties
# lie close together; a party with few speeches stands apart for that alone. That is why a cosine by itself says
# little and we also keep the margin over the best other party.

# %%
import numpy as np

parties = store.centroids("Party")
directions = np.stack(list(parties.values()))
pd.DataFrame(directions @ directions.T, index=list(parties), columns=list(parties)).round(2)

# %% [markdown]
# ## The speeches, scored
#
# The nearest orientation $po^{*}$ of all, $\mathcal{PO}$, and how far it lies from the expected one, $po_e$, on the scale $\phi$:
#
# $$ po^{*} = \operatorname*{argmax}_{po \in \mathcal{PO}} \; \mathrm{sim}(s, c_{po}) \tag{1} $$
#
# $$ \mathrm{PSA}(s, po_e) = \mathrm{sim}(s, c_{po^{*}}) \cdot \max\Big(0,\; 1 - \frac{\Delta_\phi}{12}\Big),
#    \qquad \Delta_\phi = |\phi(po_e) - \phi(po^{*})| \tag{2} $$
#
# $$ \text{Party Align}(s, p) = \mathrm{sim}(s, c_p) \tag{3} $$
#
# The columns `similarity` and `distance` are the two factors of Eq. 2. PSA is undefined for those without a place on the scale
# (Bishops, Crossbenchers, independents). `Party Align deranged` is the cosine to the next party in the alphabet: a control. A party
# of which leaving out has left nobody gives no value, to its member and to the models alike.

# %%
from parliabench_utils.metrics.alignment import COLUMNS, align
from parliabench_utils.metrics.speeches import by_job, extremes, per_job, read_speeches

pd.set_option("display.max_colwidth", 400)  # speeches are to be read
speeches = read_speeches(this_run)
vectors = sentences.encode(speeches["generated_speech"].tolist())
speeches[COLUMNS] = per_job(speeches, lambda job: align(job, vectors[job.index], store, p.leave_out))
speeches["nearest is own"] = (speeches["margin"] > 0).astype(float).where(speeches["margin"].notna())
shown = ["similarity", "distance", "PSA", "Party Align", "Party Align deranged", "margin", "nearest is own"]
by_job(speeches, [*shown, "Party Align residual"])

# %% [markdown]
# A row of a model says something about parties only if `Party Align` is clearly above `Party Align deranged`, and its
# `margin` above 0; `nearest is own` is the share of speeches where it is. The members' row is the yardstick: where even
# they are below 0, a model is not to blame for a negative margin, nor to praise for a high cosine. `Party Align
# residual` is Eq. 3 with topic and House held fixed; more below. One speech at each end of each metric:

# %%
metrics = ("PSA", "Party Align", "Party Align residual")
pd.concat({metric: extremes(speeches, metric).rename(columns={metric: "value"}) for metric in metrics})

# %% [markdown]
# Do they say the same? Rank correlations within each set, averaged, with the number of words beside them: a metric that
# mostly follows length would show it here.

# %%
from parliabench_utils.metrics.speeches import rank_correlations

rank_correlations(speeches, ["PSA", "Party Align", "margin", "Party Align residual", "n_words"])[0].round(2)

# %% [markdown]
# ## The map
#
# Centroids of all training speeches, and speeches, in the two directions in which the centroids differ most: the first two right
# singular vectors of the centroids less their mean, each times the root of its number of speeches, so that small parties do not
# draw the map.

# %%
centre = directions.mean(axis=0)
weight = np.sqrt(np.array(list(store.counts("Party").values())))[:, None]
axes_of_map = np.linalg.svd((directions - centre) * weight, full_matrices=False)[2][:2]
places, spots = (directions - centre) @ axes_of_map.T, (vectors - centre) @ axes_of_map.T

# %% [markdown]
# What matters is whether the speeches of a party lie around its centroid, or all in one cloud.

# %%
from matplotlib import pyplot as plt

fig, ax = plt.subplots(figsize=(8, 5), layout="constrained")
for party, place, color in zip(parties, places, plt.get_cmap("tab20").colors, strict=False):
    own = (speeches["Party"] == party).to_numpy()
    ax.scatter(*spots[own].T, s=10, alpha=0.6, color=color)
    ax.scatter(*place, s=100, marker="X", color=color, edgecolor="black", label=party)
ax.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
ax.set(title="Centroids (X) and speeches", xlabel="first direction", ylabel="second direction")
plt.show()

# %% [markdown]
# ## Who is taken for whom
#
# Rows: the party that a speech was written for; columns: the party whose centroid is nearest.

# %%
pd.crosstab(speeches["Party"], speeches["nearest_party"])

# %% [markdown]
# A filled diagonal would mean that speeches are nearest to their own party. Columns that attract every row are
# parties whose centroid lies in the middle, not parties that models imitate.

# %%
from parliabench_utils.metrics.speeches import boxes

boxes(speeches, ["PSA", "Party Align", "margin"]).show()

# %% [markdown]
# ## PSA above guessing?
#
# Orientations are unevenly spread, so a model that does not read at all already gets a good distance factor. Two such guessers keep
# each speech's similarity, to the same centroids, and only guess its place: one always says the same orientation $o$, the best one
# of the whole scale for the prompts that were answered; the other draws one by its share $q_o$ of the training speeches.
#
# $$ \mathrm{PSA}_o(s) = \mathrm{sim}(s, c_{po^{*}}) \cdot \Big(1 - \frac{|\phi(po_e) - \phi(o)|}{12}\Big), \qquad
#    \mathrm{PSA}_q(s) = \sum_o q_o\, \mathrm{PSA}_o(s) $$
#
# Below, PSA and the guessers' expected PSA, with intervals over prompts. A model knows where its party stands only if the last
# column lies above zero.

# %%
from parliabench_utils.metrics.alignment_tests import guess_rows, guessing

shares = store.counts("Political Orientation")
guesses = guess_rows(speeches, shares, p.bootstrap_draws, p.seed)
printed = guesses.assign(PSA=[f"{v:.2f} [{a:.2f}, {b:.2f}]" for v, a, b in guesses[["value", "low", "high"]].values])
printed.pivot(index="condition", columns="statistic", values="PSA")[list(guesses["statistic"].unique())]

# %% [markdown]
# The best constants on their own, as multiples of the similarity (Eq. 2's distance factor), and how many sets beat the
# better guesser for certain:

# %%
factor = guessing(np.ones(len(speeches)), speeches["Political Orientation"], shares).mean()
print(factor.drop("drawn by corpus share").nlargest(3).round(3).to_string())
above = guesses[guesses["statistic"] == "PSA less the better guesser's"].set_index("condition")["low"] > 0
print(f"{above.sum()} of {len(above)} sets are above the better guesser: {', '.join(above[above].index) or 'none'}")

# %% [markdown]
# ## Does the metric measure politics?
#
# The paper's evidence is one analysis of variance (section 6): Party Align differs between parties. That cannot settle
# the question, because party centroids differ in how central they are. A party whose centroid lies in the middle of
# everything has high cosines, whoever speaks. So we test the metric on members' own speeches, whose party is known.
# Every speech is scored against centroids made from *other* speeches, by cross-validation, in three ways of keeping
# them apart: at random, by debate (no debate on both sides) and by speaker (no member on both sides). (With the embedded
# corpus the members are invented: the test then says how that corpus was written. Real days are the ones to judge by.)

# %%
from parliabench_utils.corpus.dataset import debate_of
from parliabench_utils.run.artefacts import read_jsonl

folder = this_run.stage_folder("02_dataset")
human = pd.DataFrame(read_jsonl(folder / "train.jsonl") + read_jsonl(folder / "test.jsonl"))
office = pd.read_parquet(this_run.folder / "01_ingest/speeches.parquet", columns=["speech_id", "is_government"])
human = human.merge(office, on="speech_id", validate="one_to_one").sort_values("speech_id", ignore_index=True)
wanted = p.validation_speeches if this_run.writes_summary else 300  # a job of one model makes a small test, and keeps none
human = human.sample(min(wanted, len(human)), random_state=p.seed).sort_index(ignore_index=True)
human["debate"] = debate_of(human)
print(f"{len(human)} human speeches, {human['debate'].nunique()} debates, {human['speaker_id'].nunique()} members")

# %% [markdown]
# Each test is made under several conditions. *Within* a topic or House, centroids and comparisons stay inside it.
# *Within government* are the holders of government office, *outside* all others (the corpus does not mark shadow
# ministers). *Names masked* hides courtesy forms, names and party names, which give a speaker away:

# %%
from parliabench_utils.metrics.alignment_tests import masker

hide = masker(sorted(human["Party"].unique()))
telling = max(human["Speech"].str[:400], key=lambda text: len(text) - len(hide(text)))
print(telling, hide(telling), sep="\n\nbecomes\n\n")

# %% [markdown]
# *Residual* takes away from every speech the mean $m$ of its House and topic before anything is compared: what is left,
# $e(s) - m(s)$ brought to length one, is how this party differs from the others who spoke there. `Party Align residual` in the
# score files is the same for the models' speeches. In every condition and split, balanced accuracy is a mean over parties, so that
# the big ones do not rule it, and $F$ compares the spread of Party Align between $k$ parties with that within them, $n$ speeches in
# all:
#
# $$ F = \frac{SS_{between} / (k - 1)}{SS_{within} / (n - k)}, \qquad \eta^2 = \frac{SS_{between}}{SS_{between} + SS_{within}} $$

# %%
from parliabench_utils.metrics.alignment_tests import conditions, evidence_figure, findings, overview, validate

controls = conditions(human, sentences.encode)
validation = validate(controls, human, p.folds, p.shuffles, p.seed)
overview(validation).set_index(["condition", "split"])

# %% [markdown]
# `chance` is not one in so many parties: members have habits, so invented parties of real members are found too where the same
# members are on both sides. It is what the whole procedure, folds and centroids too, gives with members dealt to parties by lot, in
# that condition and split; in brackets the range of nearly all deals. The brackets of the measures are the same test turned round:
# they hold chance exactly where the deals do not reject it. `eta²` is the share of Party Align's spread that lies between parties,
# and beside it the same for *wrong* centroids.

# %%
evidence_figure(validation)
plt.show()

# %% [markdown]
# The F test in full, members kept apart. A *deranged* centroid is that of the party k places on, so nobody is scored
# on his own. *Shuffled* deals the labels out by lot, to speeches or to members, and makes folds and centroids anew; `low`
# and `high` are the range of such runs.

# %%
plain = validation[(validation["condition"] == "all speeches") & (validation["split"] == "by speaker")]
plain = plain[plain["statistic"].str.startswith("F,")].set_index("statistic")
plain[["value", "low", "high"]].map("{:.1f}".format).replace("nan", "")

# %% [markdown]
# In words, for this run, whatever came out:

# %%
print("\n\n".join(findings(validation)))

# %% [markdown]
# ## What we learned
#
# What PSA and Party Align can say: whether a speech is nearer to what a party's members say than to what others say,
# if the margin is above 0, and whether a model does better than guessing. What they cannot: that a high cosine is
# loyalty. Much of it is parliamentary English, the topic, the House and the people, and the F test cannot tell these
# from politics. Read the margin and `Party Align residual` beside the paper's value, and differences between models on
# the same prompts rather than levels. Written: one table a model and type with PSA's parts in their own columns, and
# `validation.csv`. Speeches without a value are NaN: non-partisan ones have no PSA. Next: notebook 07 asks a judge,
# 08 compares the models.

# %%
from parliabench_utils.metrics.alignment import EQUATIONS, signature
from parliabench_utils.metrics.speeches import write_scores
from parliabench_utils.run.artefacts import write_csv

signatures = {name: signature(sentences.signature, p.leave_out, name) for name in EQUATIONS}
write_scores(this_run, speeches, COLUMNS, signatures)
if this_run.writes_summary:
    write_csv(this_run.stage_folder() / "summary/validation.csv", pd.concat([validation, guesses]))
this_run.note("signatures", signatures)
this_run.note("undefined", {column: int(speeches[column].isna().sum()) for column in ("PSA", "Party Align")})
this_run.note("failed_in_04", speeches.attrs["failed"])
this_run.finish()
