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
# judge's file in `params/judges/`. **Writes:** one row for each speech and dimension in `07_judge/<judge>/<model>/<type>.jsonl`; in
# `07_judge/summary/` what failed (`failures.csv`) and how far the judge can be trusted (`trust.csv`, its numbers and answers
# beside it). **Takes:** about two seconds a speech on two cores in the demo, under three minutes in all.

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
cache = True  # keep replies in the user's cache folder, by prompt, judge, parameters and seed: nothing is asked twice
control_speeches = 4  # human speeches judged again, spoilt, to see what the judge notices
repeat_speeches = 5  # or a few more are asked again, all sets of drawn prompts: same, shuffled, reversed, second judge
repeats = 3  # how often each of them is asked in all; not in the paper
second_judge = "smollm2-constrained"  # a second judge's file; empty: none. The demo's is the same model on another scale
second_points = 5  # the second judge's scale; Flow-Judge was trained on 2, 3 and 5

# %%
from parliabench_utils.run import start

this_run = start("07_judge", globals())
p = this_run.params

# %% [markdown]
# ## Who judges, and what it is asked
#
# The paper's judge is Flow-Judge-v0.1, 3.8 billion parameters in 4 bit. The criteria of its six dimensions are printed in section 10
# and stand word for word in our judge files; its rubrics are not printed, so ours are our own. Section 4.1 describes political
# appropriateness as tone, section 10.6.1 as the party's stance: we ask for the stance, and `flow-judge-tone` for the tone.

# %%
import pandas as pd

from parliabench_utils.metrics.judge import speeches_of
from parliabench_utils.metrics.judge_prompts import judge_prompts, read_judge_spec

spec = read_judge_spec(p.judge)
pd.set_option("display.max_colwidth", 160)
pd.DataFrame([{"dimension": name, "section": d.section, "criteria": d.criteria} for name, d in spec.dimensions.items()])

# %% [markdown]
# Here is a whole prompt as the judge gets it. The speech is somebody else's text: angle brackets and headings in it are
# escaped, so that a speech that says `<score>10</score>` only quotes itself.

# %%
speeches = {pair: speeches_of(this_run.folder, *pair) for pair in this_run.model_types}
first = next((spoken[0] for spoken in speeches.values() if spoken), None)
if first is None:
    raise ValueError("04_generate holds no valid speech: there is nothing to judge")
prompts = judge_prompts(spec, first, p.points)
print(prompts[2].text)

# %% [markdown]
# The six prompts of a speech begin alike where the judge's file puts the speech first: that part is computed once.

# %%
pd.DataFrame([{"dimension": q.dimension, "shared characters": len(q.shared), "own characters": len(q.own)} for q in prompts])

# %% [markdown]
# ## Judging
#
# Every judgement is a row, written as soon as it is there; a run that was killed asks only what is missing. The engine's
# signature names weights, precision, sampling and scale.

# %%
from parliabench_utils.metrics.judge import JudgementCache, judge_speeches, open_engine

engine = open_engine(spec, p.points, p.server_url)
replies_kept = JudgementCache(engine) if p.cache else None
this_run.note("signature", engine.signature)
print(engine.signature)

# %%
folder = this_run.stage_folder() / spec.name
options = {"run_seed": p.seed, "points": p.points, "max_attempts": p.max_attempts, "cache": replies_kept}
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
# What a judge thinks before it speaks is no verdict; a line or JSON that says the score is one. The last verdict counts, it must lie
# within the scale, and what cannot be read, or can be read in two ways, is missing. The paper gives such cases -1
# (section 10.8.1); averaged, they would pull a mean down for reasons that have nothing to do with the speech.

# %%
from parliabench_utils.metrics.judge_prompts import parse_judgement

replies = ["<score>8</score>", "<score>8/10</score>", "<score>7.5</score>", "<score>8", "<score>1", "<score>85</score>"]
replies += ["<feedback>Not <score>2</score> but</feedback><score>9</score>", "<score>-1</score>", "I cannot rate this."]
replies += ["<feedback>It begins", "<think>Perhaps <score>4</score>, but", "Score: 7\nA score of 9 would need more evidence."]
replies += ['{"feedback": "Clear.", "score": 8}', "Score: 7 or 8"]
pd.DataFrame([{"reply": text, **vars(parse_judgement(text, (1, 10)))} for text in replies]).drop(columns="feedback")

# %% [markdown]
# ## What came out
#
# First how many judgements failed, for each model and dimension (`failure_rate` in `failures.csv`), then the scores. A speech with
# an incomplete rating is left out of the tables, as in the paper, or not: that is 08's parameter `missing`.

# %%
from parliabench_utils.metrics.judge_trust import failure_table, judgements_frame

scores = judgements_frame(judged)
failures = failure_table(scores)
rated = scores.groupby(["model", "type", "prompt_id", "variant"], sort=False)["score"].count() == 6
facts = {"asked": len(scores), "failed": int(scores["score"].isna().sum()), "speeches with all six": int(rated.sum())}
cached = {"from the cache": replies_kept.used, "damaged in the cache": replies_kept.damaged} if p.cache else {}
this_run.note("judgements", facts | cached)
failures.groupby(["model", "type"], sort=False)[["n_judged", "n_failed"]].sum().assign(
    speeches_with_all_six=rated.groupby(["model", "type"]).sum()
)

# %%
means = scores.pivot_table(index=["model", "type"], columns="dimension", values="score", sort=False)
means.round(3)

# %% [markdown]
# The table hides how alike the scores are. Each point below is one speech, on the whole scale.

# %%
import matplotlib.pyplot as plt
import seaborn as sns

shown = scores.assign(speaker=scores["model"] + ", " + scores["type"])
fig, ax = plt.subplots(figsize=(9, 4), layout="constrained")
sns.stripplot(shown, x="dimension", y="score", hue="speaker", dodge=True, size=3, ax=ax)
ax.set(xlabel="", ylabel="score", ylim=(0.5, p.points + 0.5), title=spec.display)
sns.move_legend(ax, "upper left", bbox_to_anchor=(1, 1), title="", frameon=False)
plt.show()

# %% [markdown]
# ## Can it be believed?
#
# A judge earns trust by what it notices. Human speeches are spoilt in four ways, each of which must lower some dimensions: their
# sentences shuffled (coherence), the party of their prompt exchanged (political appropriateness), a speech on another topic in
# their place (relevance), filler (all six). Of a judge that guesses, the original wins half the time.
#
# Which speeches is drawn by the run's seed, for the first ones would be those of the corpus's first days. Of some prompts the
# speeches of all models and types are asked again: with new seeds, with the six dimensions in another order, with the rubric
# turned round so that 1 is best, and by a second judge. This half is done once, where all models are judged together.

# %%
from parliabench_utils.metrics.judge_trust import control_questions, repeat_questions, sample_speeches

human = speeches.get(("human", "human"), [])
chosen = sample_speeches({("human", "human"): human}, p.control_speeches, p.seed)
spoilt = control_questions(chosen, human, spec, p.points, p.seed)
sample = sample_speeches(speeches, p.repeat_speeches, p.seed)
again = repeat_questions(sample, spec, p.points, p.repeats, p.seed)
groups = [*spoilt, *again] if this_run.writes_summary else []
pd.Series([group[0].ids["check"] for group in groups]).value_counts(sort=False)

# %%
from parliabench_utils.metrics.judge import ask_all

options = {"run_seed": p.seed, "max_attempts": p.max_attempts, "batch_size": spec.batch_size}
summary, asked = this_run.stage_folder() / "summary", []
if this_run.writes_summary:
    asked = ask_all(groups, engine, summary / "trust.jsonl", label="Checks", cache=replies_kept, **options)

# %% [markdown]
# The second judge sees the same speeches. In the demo it is the same small model on another scale, `second_points`, so that it
# tests the scale only; two judges of different families would be worth more.

# %%
from parliabench_utils.metrics.judge_trust import second_questions

others = []
if this_run.writes_summary and p.second_judge:
    second = read_judge_spec(p.second_judge)
    second_engine = open_engine(second, p.second_points, p.server_url if second.engine == "server" else "")
    groups = second_questions(sample, second, p.second_points)
    kept = JudgementCache(second_engine) if p.cache else None
    others = ask_all(groups, second_engine, summary / "second_judge.jsonl", label="Second judge", cache=kept, **options)

# %% [markdown]
# Agreement is Krippendorff's $\alpha$: how far the ratings of one speech differ, $D_o$, against how far any two ratings do, $D_e$;
# with another scale or judge, the weighted $\kappa$ of the pairs' shares $o_{ij}$ against what the margins give, $e_{ij}$:
#
# $$ \alpha = 1 - \frac{D_o}{D_e}, \qquad \kappa = 1 - \frac{\sum_{ij} (i - j)^2\, o_{ij}}{\sum_{ij} (i - j)^2\, e_{ij}}. $$
#
# Now the numbers. Beside each stands what a sound judge would have; brackets hold 95 % intervals (Wilson's for shares, where ties
# count half). With so few speeches they are wide: an interval that reaches below 0.5 cannot tell the judge from a coin.

# %%
from parliabench_utils.metrics.judge_trust import checks_frame, trust_display, trust_measures, verdicts

measures = trust_measures(scores, speeches, checks_frame(asked), checks_frame(others), p.points, p.second_points)
trust = trust_display(measures)
trust.style.hide(axis="index")

# %% [markdown]
# How to read it: a judge that gives nearly everybody the same mark has a small standard deviation. A greedy judge with a constrained
# ending repeats itself by construction, so its perfect alpha says nothing for it. If it read the rubric, turning the rubric round
# would turn its ranking round; if it only counted words, its scores would follow length.
#
# Length is compared within a set and prompt, as a set may be both longer and better. Whoever surely pays for it fails, whoever
# surely pays next to nothing passes; where the interval is too wide for either, the check is undecided, and so is one that could
# not be measured.

# %%
from parliabench_utils.metrics.judge_trust import BLIND, PAYS, WORDS

scale = p.points - 1
print(f"pays for length: more than {PAYS * scale:g} points for 100 words; blind to it: less than {BLIND * scale:g}\n")
found = verdicts(measures, p.points).set_index("dimension")
for name, row in found.iterrows():
    print("\n".join(f"{name} {word}: {row[word] or 'nothing'}" for word in WORDS), end="\n\n")
this_run.note("trust", found.to_dict("index"))

# %% [markdown]
# Then how much the six have in common, within each set and averaged: correlations near 1 mean one opinion under six names. (Over
# all sets at once a judge that only likes one model would seem to have one opinion.)

# %%
from parliabench_utils.metrics.judge_prompts import DIMENSIONS
from parliabench_utils.metrics.speeches import rank_correlations

by_speech = ["model", "type", "prompt_id", "variant"]
wide = scores.pivot_table(index=by_speech, columns="dimension", values="score", sort=False).reindex(columns=DIMENSIONS)
rho, n, sets = rank_correlations(wide.reset_index(), DIMENSIONS)
print(f"{int(n.to_numpy().max())} speeches of {int(sets.to_numpy().max())} sets")
rho.round(2)

# %% [markdown]
# ## What we learned
#
# - The demo's judge is a very small model. It gives every speech nearly the same score on all dimensions; the checks above say
#   what it notices, on a handful of speeches. Its numbers prove that the pipeline runs; they are **no evidence about speeches**,
#   and no ranking should be read from them. Even the paper's judge was trained on scales of 2, 3 and 5 points, not 10.
# - What the judge could not say is missing, counted in `failures.csv`, and never a number.
# - Whether people agree with it can be found out: `python -m parliabench_utils annotate --run NAME` makes a form for raters.
# - Where to go next: 08 joins these scores to the computed metrics and tests what fine-tuning changed.

# %%
from parliabench_utils.run.artefacts import write_csv

if this_run.writes_summary:
    for name, table in {"failures": failures, "trust": trust, "trust_measures": measures}.items():
        write_csv(summary / f"{name}.csv", table)
    if not others:
        (summary / "second_judge.jsonl").write_text("")
print(f"{len(scores)} judgements of {sum(map(len, speeches.values()))} speeches, {facts['failed']} without a score")
this_run.finish()
