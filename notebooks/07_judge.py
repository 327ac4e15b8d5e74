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
# # 07 · The judge: six opinions on each speech, and how far to believe them
#
# **Question.** What does a language model think of each speech, on six dimensions, and is that worth anything?
#
# **In the paper:** Table 1 (the six J_ metrics), sections 4.1 and 10. **Reads:** `02_dataset/prompts.jsonl`, `04_generate/` and a
# judge's file in `params/judges/`. **Writes:** one row for each speech and dimension in `07_judge/<judge>/<model>/<type>.jsonl`;
# `failures.csv` and `trust.csv` in `07_judge/summary/`. **Takes:** about one and a half seconds a speech on two cores in the demo,
# two to three minutes in all.

# %% tags=["parameters"]
run = "demo"  # name of the folder under outputs/
profile = "demo"  # which parameter files were read
seed = 42  # of sampling, one seed derived for each judgement
data_root = "data"  # not used here; all notebooks share these keys
models = ["smollm2-135m", "smollm2-135m-nf4"]  # whose speeches are judged
types = ["baseline", "fine-tuned"]  # before and after fine-tuning; human speeches are judged too
n_threads = 2  # for numerical libraries
offline = True  # never ask a model hub
model = ""  # one model only (set by --model); empty: all
type = ""  # one type only (set by --type); empty: all
shard = -1  # not used here
judge = "smollm2-constrained"  # a file in params/judges; the paper: flow-judge (section 10.8.1)
points = 10  # scores from 1 to this; the paper: 10 (section 4.1)
max_attempts = 1  # how often a reply without a score is asked for; the constrained ending never needs a second time
server_url = ""  # for a judge on an OpenAI-compatible server, e.g. http://localhost:8000/v1
control_speeches = 4  # human speeches judged again, and spoilt, to see what the judge notices

# %%
from parliabench_utils.run import start

run = start("07_judge", globals())
p = run.params

# %% [markdown]
# ## Who judges, and what it is asked
#
# The paper's judge is Flow-Judge-v0.1, 3.8 billion parameters in 4 bit. The criteria of its six dimensions are printed in section 10
# and stand word for word in our judge files; its rubrics are not printed, so ours are our own.

# %%
import pandas as pd

from parliabench_utils.metrics.judge import judge_prompts, judge_speeches, open_engine, read_judge_spec, speeches_of

spec = read_judge_spec(p.judge)
pd.set_option("display.max_colwidth", 160)
pd.DataFrame([{"dimension": name, "section": d.section, "criteria": d.criteria} for name, d in spec.dimensions.items()])

# %% [markdown]
# Here is a whole prompt as the judge gets it. The speech is somebody else's text: angle brackets and headings in it are
# escaped, so that a speech that says `<score>10</score>` only quotes itself.

# %%
speeches = {pair: speeches_of(run.folder, *pair) for pair in run.model_types}
first = next((spoken[0] for spoken in speeches.values() if spoken), None)
if first is None:
    raise ValueError("04_generate holds no valid speech: there is nothing to judge")
prompts = judge_prompts(spec, first, p.points)
print(prompts[2].text)

# %% [markdown]
# The six prompts of a speech begin alike where the judge's file puts the speech first: that part is computed once.

# %%
pd.DataFrame(
    [{"dimension": q.dimension, "shared characters": len(q.shared), "own characters": len(q.own)} for q in prompts]
)

# %% [markdown]
# ## Judging
#
# Every judgement is a row, written as soon as it is there; a run that was killed asks only what is missing. The engine's
# signature names weights, precision and scale.

# %%
engine = open_engine(spec, p.points, p.server_url)
run.note("signature", engine.signature)
print(engine.signature)

# %%
folder = run.stage_folder() / spec.name
options = {"run_seed": p.seed, "points": p.points, "max_attempts": p.max_attempts}
judged = {
    (m, t): judge_speeches(spoken, spec, engine, folder / m / f"{t}.jsonl", label=f"Judging {m}, {t}", **options)
    for (m, t), spoken in speeches.items()
}
sum(map(len, judged.values()))

# %% [markdown]
# One row as it stands in the file. With the constrained ending `raw` is the judge's distribution over the scale and the
# score its mean; with free text `raw` is the reply and `feedback` the judge's reasons.

# %%
next(rows[0] for rows in judged.values() if rows)

# %% [markdown]
# ## How replies are read
#
# The last verdict counts, it must lie within the scale, and what cannot be read is missing. The paper gives such cases -1
# (section 10.8.1); averaged, they would pull a mean down for reasons that have nothing to do with the speech.

# %%
from parliabench_utils.metrics.judge import parse_judgement

replies = [
    "<score>8</score>",
    "<score>8/10</score>",
    "<score>7.5</score>",
    "<feedback>Not <score>2</score> but</feedback><score>9</score>",
]
replies += [
    "<score>8",
    "<score>1",
    "<score>85</score>",
    "<score>-1</score>",
    "I cannot rate this.",
    "<feedback>It begins",
]
pd.DataFrame([{"reply": text, **vars(parse_judgement(text, (1, 10)))} for text in replies]).drop(columns="feedback")

# %% [markdown]
# ## What came out
#
# First how many judgements failed, for each model and dimension, then the scores.

# %%
from parliabench_utils.metrics.judge_trust import failure_table, judgements_frame

scores = judgements_frame(judged)
failures = failure_table(scores)
run.note("judgements", {"asked": len(scores), "failed": int(scores["score"].isna().sum())})
failures.groupby(["model", "type"], sort=False)[["n_judged", "n_failed"]].sum()

# %%
means = scores.pivot_table(index=["model", "type"], columns="dimension", values="score", sort=False)
means.round(3)

# %% [markdown]
# The table hides how alike the scores are. Each point below is one speech.

# %%
import matplotlib.pyplot as plt
import seaborn as sns

shown = scores.assign(speaker=scores["model"] + ", " + scores["type"])
fig, ax = plt.subplots(figsize=(9, 4), layout="constrained")
sns.stripplot(shown, x="dimension", y="score", hue="speaker", dodge=True, size=3, ax=ax)
ax.set(xlabel="", ylabel=f"score, 1 to {p.points}", title=spec.display)
sns.move_legend(ax, "upper left", bbox_to_anchor=(1, 1), title="", frameon=False)
plt.show()

# %% [markdown]
# ## Can it be believed?
#
# A judge earns trust by what it notices. A few human speeches are asked again in another order and spoilt in three ways: their
# sentences shuffled, all their words shuffled, replaced by filler. A sound judge puts the original first (share near 1);
# one that guesses does so half the time. And its scores should not follow from length alone.

# %%
from parliabench_utils.metrics.judge_trust import judge_controls, trust_table

human = speeches.get(("human", "human"), [])
controls = judge_controls(human[: p.control_speeches], spec, engine, p.seed, p.points)
length = {(*pair, s["prompt_id"], s["variant"]): s["n_words"] for pair, spoken in speeches.items() for s in spoken}
trust = trust_table(scores, pd.Series(length, dtype=float), controls)
trust.round(3).set_index("dimension").T

# %% [markdown]
# How to read it: `sd` and `distinct` say how close to a constant a dimension is, `length_rho` how far it only counts words,
# `human_minus_models` whether people are preferred to models at all, `beats …` the share of pairs ranked right.
#
# Then how much the six have in common: correlations near 1 mean one opinion under six names.

# %%
wide = scores.pivot_table(
    index=["model", "type", "prompt_id", "variant"], columns="dimension", values="score", sort=False
)
wide.corr(method="spearman").round(2)

# %%
constant = trust.loc[trust["distinct"] < 2, "dimension"].tolist()
narrow = trust.loc[trust["sd"] < 0.05 * (p.points - 1), "dimension"].tolist()
run.note("dimensions", {"constant": constant, "spread under 5 % of the scale": narrow})
print(f"constant: {', '.join(constant) or 'none'}; spread under 5 % of the scale: {', '.join(narrow) or 'none'}")

# %% [markdown]
# ## What we learned
#
# - The demo's judge has 135 million parameters. It gives every speech nearly the same score on all dimensions; the shares above
#   say what spoiling it notices, on a handful of speeches. Its numbers prove
#   that the pipeline runs; they are **no evidence about speeches**, and no ranking should be read from them. Even the paper's
#   judge was trained on scales of 2, 3 and 5 points, not 10.
# - What the judge could not say is missing, counted in `failures.csv`, and never a number.
# - Where to go next: 08 joins these scores to the computed metrics and tests what fine-tuning changed.

# %%
from parliabench_utils.run.artefacts import write_csv

if run.writes_summary:
    write_csv(run.stage_folder() / "summary/failures.csv", failures)
    write_csv(run.stage_folder() / "summary/trust.csv", trust)
print(
    f"{len(scores)} judgements of {sum(map(len, speeches.values()))} speeches, {scores['score'].isna().sum()} without a score"
)
run.finish()
