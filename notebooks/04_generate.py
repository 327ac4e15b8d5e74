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
# # 04 · Generate: the same prompts for every model, base and tuned
#
# **Question.** What do the models say, how often is it no speech at all, and on which prompts can they be compared?
#
# **In the paper:** sections 5.3 and 11.3.2, and the nine checks of its project page. **Reads:**
# `02_dataset/prompts.jsonl`, the adapters of 03, and the human speeches that 02 wrote. **Writes:**
# `04_generate/<model>/<type>/shard-<k>.jsonl`, rejected attempts beside it, and `04_generate/summary/`. **Takes:**
# about three minutes in the demo.

# %% tags=["parameters"]
run = "demo"  # name of the folder under outputs/
profile = "demo"  # which parameter files were read
seed = 42  # with prompt, variant and attempt it gives each speech its own seed
data_root = "data"  # not used here; all notebooks share these keys
models = ["smollm2-135m", "smollm2-135m-nf4"]  # files of params/models/; the paper's five: Table 5
types = ["baseline", "fine-tuned"]  # what each model is asked as; few-shot and retrieval are further ones
n_threads = 2  # for numerical libraries
offline = True  # never ask a model hub
model = ""  # one of models: do only this one (the runner's --model)
type = ""  # one of types (--type)
shard = -1  # one shard of the prompts (--shard); -1 is all
temperature = 0.7  # section 5.3
top_p = 0.85  # section 5.3
repetition_penalty = 1.2  # section 5.3
max_new_tokens = 112  # the project page has 850
min_words = 30  # in the prompt and in the length check; the page has 43
max_words = 200  # the page has 635
batch_size = 16  # changes no text in fp32
variants_per_prompt = 1  # speeches of one prompt
max_attempts = 3  # section 5.3
few_shot_examples = 3  # type few-shot: training speeches that the base is shown; not in the paper
precision = "auto"  # auto: fp32 on a CPU, bf16 on a GPU; nf4 weights are dequantised
trim_to_sentence = True  # cut a text that ran into the token limit back to a whole sentence
min_similarity = 0.08  # check 5: cosine of speech and context (project page)
max_other_language = 0.85  # check 3: probability of another language (page)
max_word_run = 3  # check 4: one word, times running (page)
max_phrase_run = 3  # check 4: 3 to 7 words, times running (page)
max_openings = 3  # check 7: more are several speeches (page)
encoder = "all-MiniLM-L6-v2"  # sentence embeddings for check 5

# %%
from parliabench_utils.run import start

this_run = start("04_generate", globals())
p = this_run.params

# %% [markdown]
# ## One prompt, as the model gets it
#
# The system text is the paper's (section 11.3.2) with the word limits filled in, then follow the five context lines
# and the instruction.

# %%
from parliabench_utils.models.generation import GenerationSettings
from parliabench_utils.models.prompting import render_prompt
from parliabench_utils.models.specs import load_tokenizer, read_model_spec
from parliabench_utils.run.artefacts import read_jsonl

shards = this_run.shards
prompts = [row for row in read_jsonl(this_run.folder / "02_dataset/prompts.jsonl") if row["shard"] in shards]
settings = GenerationSettings.from_params(p)
spec = read_model_spec(this_run.model_types[0][0])
print(render_prompt(spec, load_tokenizer(spec), prompts[0], min_words=p.min_words, max_words=p.max_words))

# %% [markdown]
# ## The nine checks
#
# A text that fails one of them is drawn again, up to `max_attempts` attempts. They look for what language models do and members
# do not: labels of the prompt, broken characters, another language, loops, another topic, wrong length, several
# speeches in one, a broken end, a refusal.

# %%
import pandas as pd

from parliabench_utils.models.validation import validate_speech, validation_settings

checks = validation_settings(p)
texts = [
    "My Lords, I am grateful to the noble Baroness. " * 4 + "I beg to move.",
    "PARTY: Labour. I thank the hon. Member for his question and will write to him about the figures for 2021.",
    "As an AI language model, I cannot take the side of a party in a debate.",
    "My hon. Friend is right to raise the case of Ysbyty Gwynedd. As they say, diolch yn fawr: we owe our nurses more than thanks, "
    "and the Minister will have heard that from both sides of the House.",
]
pd.DataFrame({"text": texts, "fails": [", ".join(validate_speech(t, settings=checks)) or "nothing" for t in texts]})

# %% [markdown]
# The fifth check asks whether a speech $s$ has to do with its context $c$ (House, section, topic, party and the question, as a
# sentence) at all. Both are read by a sentence encoder $e$, and their cosine must reach `min_similarity`:
#
# $$ \cos(s, c) = \frac{e(s) \cdot e(c)}{\lVert e(s) \rVert\, \lVert e(c) \rVert} \in [-1, 1]. $$
#
# The threshold is the project page's. Here are the same texts, held against the prompt above.

# %%
from parliabench_utils.models.validation import similarity_to_prompt

cosines = similarity_to_prompt(texts, [prompts[0]] * len(texts), checks.encoder)
pd.DataFrame({"text": texts, "cosine": cosines, "on topic": [cosine >= p.min_similarity for cosine in cosines]}).round(2)

# %% [markdown]
# ## Generating
#
# Base and tuned model get the same prompts and the same seeds. On a CPU everything is computed in fp32, where a text
# does not depend on the batch it was made in, so a run that was killed ends with the same file.
#
# One token follows another. The model gives each token $i$ of its vocabulary a logit $z_i$; one that the text holds already is
# made less likely by the repetition penalty $\rho$, and temperature $T$ sharpens the rest (section 5.3):
#
# $$ z'_i = \begin{cases} z_i / \rho & i \text{ seen}, z_i > 0 \\
# z_i\, \rho & i \text{ seen}, z_i \le 0 \\ z_i & \text{else} \end{cases}
# \qquad p_i = \frac{\exp(z'_i / T)}{\sum_j \exp(z'_j / T)} . $$
#
# The token is drawn from the nucleus $V$, the fewest likeliest tokens that hold `top_p` together, $\sum_{i \in V} p_i \ge p$.

# %%
import torch

from parliabench_utils.models.backends import draw, penalise_seen

logits = torch.tensor([[2.0, 1.5, 1.0, -1.0]]).repeat(2000, 1)  # four words, of which the first was said already
sayings = penalise_seen(logits, torch.zeros(2000, 1, dtype=torch.long), p.repetition_penalty)
drawn = draw(sayings, torch.arange(2000), 0, settings.sampling)
shares = {"before": logits[0].softmax(0), "p": (sayings[0] / p.temperature).softmax(0), "drawn": drawn.bincount(minlength=4) / 2000}
pd.DataFrame(shares, index=["the", "a", "my", "fish"]).astype(float).round(2)

# %% [markdown]
# What lies outside the nucleus is never drawn, and the rest share its part. Each row has a seed of its own,
# made of the run's seed, prompt, variant and attempt.
#
# A base model's failures mix two things: it may not follow instructions, and it may not know Westminster. Two further
# `types` take them apart, where asked for: `few-shot` shows the base training speeches of the prompt's context, and
# `retrieval` answers with the nearest such speech itself. Neither uses a speech that is one of the prompt's references.

# %%
from parliabench_utils.corpus.prompts import nearest_examples

needed = settings.examples_needed([kind for _, kind in this_run.model_types])
examples = {}
if needed:
    train_rows, references = (read_jsonl(this_run.folder / "02_dataset" / f"{n}.jsonl") for n in ("train", "references"))
    fitting = [row for row in train_rows if p.min_words <= row["n_words"] <= p.max_words]
    examples = nearest_examples(prompts, fitting, references, checks.encoder, needed)
    lacking = sum(len(found) < needed for found in examples.values())
    this_run.note("prompts_with_fewer_examples", lacking)
    print(f"prompts whose party has fewer: {lacking} of {len(prompts)}")
print(f"training speeches a prompt that are shown or stand in for an answer: {needed or 'none, no such type'}")

# %% [markdown]
# The next token is drawn from the model's scores $z_v$ (section 5.3). Those of tokens that stand there already are lowered by the
# repetition penalty $\theta$, all are divided by the temperature $T$, and only the most likely tokens $N$ that together have the
# probability `top_p` stay:
#
# $$ p(v) = \frac{e^{z'_v / T}}{\sum_{u \in N} e^{z'_u / T}}, \qquad
#    z'_v = z_v / \theta \text{ if } z_v > 0 \text{ else } \theta z_v, \text{ for a token that has been said.} $$
#
# All first attempts come before the second ones, so that the prompts that failed share a batch. After a restart only
# what is missing is made.

# %%
from parliabench_utils.models.generation import determinism, generate_pair, load_speaker, pending_shards, read_fingerprints

asked_precision = None if p.precision == "auto" else p.precision
for name, kind in this_run.model_types:
    todo = pending_shards(this_run.folder, name, kind, shards)
    if todo:
        loaded = load_speaker(name, kind, this_run.folder, asked_precision)
        generate_pair(loaded, kind, prompts, todo, settings, checks, this_run.folder, p.seed, examples)
fingerprints = read_fingerprints(this_run.folder, this_run.model_types, shards)
this_run.note("models", fingerprints)

# %% [markdown]
# ## Side by side
#
# One prompt, all answers. An empty answer is one for which no attempt passed.

# %%
from textwrap import shorten

from parliabench_utils.metrics.speeches import read_generated

speeches = read_generated(this_run.folder, this_run.model_types, shards)
first = speeches[speeches["prompt_id"] == prompts[0]["prompt_id"]].fillna({"generated_speech": ""})
for row in first.itertuples():
    print(f"--- {row.model}, {row.type}, attempt {row.attempts} ---\n{shorten(row.generated_speech, 600)}\n")

# %%
from parliabench_utils.metrics.speeches import summary

this_run.note("summary", summary(speeches).round(4).to_dict("records"))
summary(speeches).round(2)

# %% [markdown]
# `stopped` is the share of answers that ended by themselves; the others ran into the token limit, and `trimmed` ones
# were cut back to their last whole sentence. A base model that never ends is the most frequent failure.
#
# ## What was rejected, and the checks' own mistakes
#
# The same checks on the corpus's own speeches to these prompts show their false alarms. The human texts are kept
# whatever comes out.

# %%
from parliabench_utils.metrics.speeches import failure_counts, human_failures

human = read_generated(this_run.folder, [("human", "human")], shards)
by_id = {prompt["prompt_id"]: prompt for prompt in prompts}
failures = pd.concat([failure_counts(speeches), human_failures(human, by_id, checks)], ignore_index=True)
failures.pivot_table(index=["model", "type", "attempt"], columns="reason", values="count", fill_value=0, sort=False).astype(int)

# %% [markdown]
# ## Length, against the members' own
#
# The dotted lines are the quartiles of what members said to the same prompts.

# %%
from matplotlib import pyplot as plt

everything = pd.concat([speeches, human], ignore_index=True).dropna(subset="generated_speech")
lengths = {f"{m}\n{k}": g["n_words"].to_numpy() for (m, k), g in everything.groupby(["model", "type"], sort=False)}
fig, ax = plt.subplots(figsize=(7, 3))
ax.boxplot(list(lengths.values()), tick_labels=list(lengths), orientation="vertical")
for words in human["n_words"].quantile([0.25, 0.5, 0.75]):
    ax.axhline(words, color="0.7", linestyle=":", linewidth=1, zorder=0)
ax.set(ylabel="words a speech", title="Length of valid speeches, and of the members' own")
ax.tick_params(axis="x", labelsize=7)
plt.show()

# %% [markdown]
# ## Which prompts can be compared
#
# Only those that every model and type answered: a model must not look better since it was silent on the hard ones.
# Leaving prompts out may change the mix of parties, so we look at it.

# %%
from parliabench_utils.metrics.speeches import split_prompts, write_summary

kept, left_out = split_prompts(speeches)
print(f"{len(kept)} of {speeches['prompt_id'].nunique()} prompts were answered by all; left out: {left_out or 'none'}")
print(f"the paper kept {29_220:,} of {30_000:,} speeches (section 5.3)")
party = pd.DataFrame(prompts).set_index("prompt_id")["Party"]
mix = {"all prompts": party.value_counts(normalize=True), "kept": party[kept].value_counts(normalize=True)}
pd.DataFrame(mix).fillna(0.0).sort_index().round(2)

# %%
if this_run.writes_summary:
    write_summary(this_run.stage_folder() / "summary", kept, left_out, failures)

# %% [markdown]
# ## What tuning changed
#
# Failures on all prompts; then, on the prompts that all answered, how long the speeches are and how often they use the
# words of the place: "hon.", "My Lords", "Mr Speaker", "the Minister", "this House" and the like. The paper says in
# words that tuned models fail less often (section 5.3); here it is counted.

# %%
from parliabench_utils.models.generation import parliamentary_pairs, what_changed

changed = what_changed(speeches, human, kept)
changed.round(2)

# %% [markdown]
# The same prompt by prompt: on how many of them the tuned model's speech has more of these words than its base's.

# %%
pairs = parliamentary_pairs(speeches, kept)
this_run.note("parliamentary", pairs.round(4).to_dict("records"))
pairs.round(2)

# %% [markdown]
# A tuned model is the more parliamentary one where `more often` is larger than `less often`. Where it is not, the adapter
# was trained for too few steps to change the manner (`max_steps` of notebook 03), or too few prompts were answered by
# both to say.
#
# ## What we learned
#
# The failure table is a result of its own: it says how much help a model needed before its speeches could be scored
# at all. Written: one file a model, type and shard, the rejected attempts beside it, and for all together
# `kept_prompts.json` and `failures.csv`. Prompts left out are listed above, with the models that failed on them.
# Next: notebook 05 scores the texts, 06 their politics, 07 asks a judge.

# %%
this_run.note(
    "dropped",
    [{"prompt_id": key, "reason": f"no valid speech from {', '.join(pairs)}"} for key, pairs in left_out.items()],
)
this_run.note("determinism", determinism(fingerprints))
this_run.finish()
