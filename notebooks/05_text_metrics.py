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
# # 05 · Six numbers about a text
#
# **Question.** Is a speech fluent, varied and coherent, and does it resemble what members said in such a debate? Six
# metrics answer, each its own part of the question, and each can be fooled. The members' own speeches are scored
# beside the models'.
#
# **In the paper:** section 4.1 (1) and (2), the computational columns of Table 2 without PSA and Party Align.
# **Reads:** the speeches of 04; prompts, references, training speeches and the acceptability classifier of 02.
# **Writes:** `05_text_metrics/<model>/<type>.parquet`, a row a speech, the metrics' signatures beside it, and
# `summary/correlations.csv`. **Takes:** about a minute in the demo, nearly all of it for the language model.

# %% tags=["parameters"]
run = "demo"  # name of the folder under outputs/
profile = "demo"  # which parameter files were read
seed = 42  # nothing is drawn here; all notebooks share these keys
data_root = "data"  # not used here; all notebooks share these keys
models = ["smollm2-135m", "smollm2-135m-nf4"]  # whose speeches are scored; the paper: five (Table 5)
types = ["baseline", "fine-tuned"]  # each before and after tuning (section 5.3)
n_threads = 2  # for the models, and for MoverScore's solver
offline = True  # never ask a model hub
model = ""  # one model only (the runner's --model); empty: all
type = ""  # one type only (the runner's --type); empty: all
shard = -1  # not used: a job scores all shards of its model and type
language_model = "smollm2-135m"  # reads for perplexity. The paper: GPT-2 (section 4.1)
precision = "fp32"  # of the language model; in bf16 values depend a little on the batch
max_words = 512  # perplexity reads so many words of a speech (project page)
batch_size = 8  # speeches that the language model reads at once (project page)
distinct_per = "ngrams"  # divide by the n-grams (section 4.1), the "tokens" (project page), or what is "expected"
distinct_vocabulary = 30522  # kinds of words to draw from; read with "expected" only
self_bleu_group = "model"  # whom a speech is compared with: "prompt" (its variants; section 4.1), "context", "model" (project page)
self_bleu_n = 4  # longest n-gram
grammar = "causal"  # GRUEN's grammar: "causal" model and the classifier of 02, or "masked" models (the paper)
masked_model = "bert-base-cased"  # not read when grammar is causal
acceptability_model = "textattack/bert-base-uncased-CoLA"  # not read when grammar is causal
gruen_parity = False  # True: as the published code, focus part inert
sentence_encoder = "all-MiniLM-L6-v2"  # for GRUEN's focus
bertscore_encoder = "all-MiniLM-L6-v2"  # the paper: roberta-large (project page)
bertscore_layer = 5  # 17 for roberta-large
bertscore_idf = False  # weigh pieces by rarity
bertscore_rescale = False  # only for encoders with a known baseline
moverscore_encoder = "all-MiniLM-L6-v2"  # the paper: distilbert-base-uncased (project page)
moverscore_layer = -1  # the last
moverscore_idf = "references"  # "off", "references" (the same for every model) or "both" (the reference code; sets then differ)
moverscore_over = "mean"  # over a prompt's references: "mean" or "max"
moverscore_cost = "euclidean"  # version 2: 1 / (1 + distance); "squared", version 1: 1 - distance

# %%
from parliabench_utils.run import start

this_run = start("05_text_metrics", globals())
p = this_run.params

# %% [markdown]
# ## The speeches
#
# Every speech that passed 04's checks, the members' own last. A metric is computed for one model and type at a time, so
# that no value depends on which other models happen to be scored in the same call. BERTScore alone reads all at once,
# since they share their references; company may move its sixth decimal.

# %%
import pandas as pd

from parliabench_utils.metrics.speeches import all_references, by_job, extremes, per_job, read_references, read_speeches

pd.set_option("display.max_colwidth", 400)  # speeches are to be read
speeches = read_speeches(this_run)
print("speeches missing because no attempt passed the checks:", speeches.attrs["failed"] or "none")
speeches.groupby(["model", "type"], sort=False)["n_words"].describe().round(0).astype(int)

# %% [markdown]
# One of them, whole:

# %%
example = speeches.iloc[0]
print(f"{example.Party}, {example.House}, {example.Section} ({example.model}, {example.type})\n")
print(example.generated_speech)

# %% [markdown]
# ## Perplexity: does a language model expect this text?
#
# For the words $w_1 \dots w_n$ of a speech $s$ (paper 4.1 (1), first metric):
#
# $$ \mathrm{PPL}(s) = \exp\Big(-\frac{1}{n} \sum_{i=1}^{n} \log p(w_i \mid w_{<i})\Big) $$
#
# A model that would have written the same gives a low value. It also gives a low value to repetition, so it never stands alone.
# The signature says which model reads, and with which token a text starts: without one the first word would be scored from nothing.

# %%
from parliabench_utils.metrics import perplexity

reader, tokenizer, fingerprint = perplexity.load_language_model(p.language_model, p.precision)
signatures = {"PPL": perplexity.signature(fingerprint, tokenizer, p.max_words)}
signatures["PPL"]


# %%
def read(job):
    sums, counts = perplexity.log_likelihoods(job["generated_speech"].tolist(), reader, tokenizer, p.max_words, p.batch_size)
    return pd.DataFrame({"sum": sums, "n_tokens": counts})


likelihoods = per_job(speeches, read)
speeches["n_tokens"] = likelihoods["n_tokens"]
speeches["PPL"] = perplexity.per_text(*likelihoods.to_numpy().T)
extremes(speeches, "PPL")

# %% [markdown]
# The lowest value belongs to the text that the reader could have predicted best, the highest to the one that
# surprised it most; neither need be the best or worst speech. A mean is ruled by such extremes, so we look at the
# median beside it, and at `all tokens`: one value for all speeches of a set, in which every token weighs the same. In
# the demo the reader is also the base of the generators and flatters them: compare the two types, not models with
# members.

# %%
table = speeches.groupby(["model", "type"], sort=False)["PPL"].agg(["median", "mean", "max"])
table["all tokens"] = likelihoods.groupby([speeches["model"], speeches["type"]], sort=False).apply(
    lambda job: perplexity.corpus_perplexity(job["sum"], job["n_tokens"])
)
this_run.note("corpus_perplexity", {"/".join(job): round(value, 6) for job, value in table["all tokens"].items()})
table.round(1)

# %% [markdown]
# ## Distinct-n: how much is said twice?
#
# The share of n-grams that differ (paper 4.1 (1), second metric; Table 2 has pairs of words):
#
# $$ \mathrm{Dist}\text{-}n(s) = \frac{|\{\, g : g \text{ is an } n\text{-gram of } s \,\}|}{|s| - n + 1} $$
#
# One repeated phrase lowers it, and so does length: a long speech must say "the hon. Member" again.

# %%
from parliabench_utils.metrics import distinct

for n in (1, 2, 3, 4):
    settings = {"n": n, "per": p.distinct_per, "vocabulary": p.distinct_vocabulary}
    speeches[f"Dist-{n}"] = distinct.distinct_n(speeches["generated_speech"].tolist(), **settings)
    signatures[f"Dist-{n}"] = distinct.signature(**settings)
by_job(speeches, ["Dist-1", "Dist-2", "Dist-3", "Dist-4"])

# %% [markdown]
# And the two ends of the scale:

# %%
extremes(speeches, "Dist-2")

# %% [markdown]
# Above, the speech that repeats itself most and the one that does so least. How much of the difference is length alone
# shows in the correlation with the number of words, at the end.
#
# ## Self-BLEU: does a model say the same to everybody?
#
# BLEU of each speech against the other speeches $G \setminus s$ of its group (paper 4.1 (1), third metric), from the share $p_n$ of
# its n-grams $g$ that another speech has too, each counted as often as in the speech with most:
#
# $$ \text{Self-BLEU}(s) = \mathrm{BLEU}(s, G \setminus s),
#    \qquad \mathrm{BLEU} = \min\big(1, e^{1 - r/|s|}\big)\,\exp\Big(\frac{1}{N}\sum_{n=1}^{N} \log p_n\Big), $$
#
# $$ p_n = \frac{\sum_g \min\big(c_s(g), \max_{r \in G \setminus s} c_r(g)\big)}{\sum_g c_s(g)} $$
#
# where $r$ in the exponent is the length nearest to that of $s$. One says that nothing is new, so lower is better. The paper
# names variants under one prompt; where a prompt has one speech the group is all speeches of the model.
#
# The value grows with the size of the group, and it depends on what the others answer. The column that this notebook writes
# is a job's own, over all its valid speeches; notebook 08 computes it again for what it compares. So does the table below,
# for this call's jobs: as many speeches to the same prompts in each.

# %%
from parliabench_utils.metrics import self_bleu

self_bleu.require_variants(p.self_bleu_group, speeches.attrs["variants"])
groups = self_bleu.GROUP_COLUMNS[p.self_bleu_group]
speeches["Self-BLEU"] = per_job(
    speeches,
    lambda job: self_bleu.self_bleu(job["generated_speech"].tolist(), job[groups].tolist(), p.self_bleu_n),
)
signatures["Self-BLEU"] = self_bleu.signature(p.self_bleu_group, p.self_bleu_n)
same_prompts = self_bleu.comparable(speeches, p.self_bleu_group, p.self_bleu_n)
alike = speeches.assign(**{"Self-BLEU": same_prompts})
by_job(alike.dropna(subset="Self-BLEU"), ["Self-BLEU"])

# %% [markdown]
# The speech that owes least to the others, and the one that owes most:

# %%
extremes(alike, "Self-BLEU")

# %% [markdown]
# The highest values go to set phrases that everybody uses, the lowest to a speech with words of its own, or to
# nonsense.
#
# ## GRUEN: grammar, redundancy, focus
#
# A sum of three parts (paper 4.1 (2), Zhu and Bhat 2020): *grammar* from a language model's loss $\ell$ and the logit $a$ of a
# classifier of acceptable sentences, means over a speech's sentences; *redundancy* for each sign that two of its $m$ sentences say
# the same; *focus* for neighbours that have nothing to do with each other.
#
# $$ \mathrm{GRUEN}(s) = \min\big(1, \max(0,\; G + R + F)\big), \qquad G = \max\Big(0, \frac{e^{-\ell/2} + a}{8} + \frac{1}{2}\Big) $$
#
# $$ R = -0.1 \sum_{i<j} \frac{\mathrm{signs}(i, j)}{m(m-1)/2}, \qquad F = -0.1 \sum_{i} \frac{[\cos(i, i+1) < 0.05]}{m - 1} $$
#
# In the published code the last part never fires, and the second is not divided, so that it grows with the square of a speech's
# length; ours takes a pair's average unless `gruen_parity` is set.

# %%
from parliabench_utils.metrics import gruen
from parliabench_utils.models.embeddings import SentenceEncoder

if p.grammar == "causal":
    classifier = gruen.read_acceptability(this_run.stage_folder("02_dataset") / "shared")
    judge_of_grammar = gruen.CausalGrammar(reader, tokenizer, fingerprint, classifier)
    print(f"the classifier tells real from damaged sentences of unseen speeches with an AUC of {classifier.auc:.2f}")
else:
    judge_of_grammar = gruen.MaskedGrammar(p.masked_model, p.acceptability_model)
similarity = gruen.SentenceSimilarity(SentenceEncoder(p.sentence_encoder))
signatures["GRUEN"] = gruen.signature(judge_of_grammar.signature, similarity.signature, p.gruen_parity)
signatures["GRUEN"]

# %% [markdown]
# What the grammar part sees, on one sentence and three damaged forms of it (language-model loss, acceptability logit,
# score):

# %%
sentences = [
    "I thank the hon. Member for his question.",
    "I thank the the hon. Member for his question.",
    "I thank hon. the Member his for question.",
    "I thanks hon. Member for question of his the.",
]
loss, logit = judge_of_grammar(sentences)
score = [gruen.grammar_score(*pair) for pair in zip(loss, logit, strict=True)]
pd.DataFrame({"sentence": sentences, "loss": loss, "logit": logit, "grammar": score}).round(3)

# %% [markdown]
# The sum itself, for every speech:

# %%
texts = speeches["generated_speech"].tolist()
speeches[gruen.COLUMNS] = per_job(
    speeches, lambda job: gruen.gruen(job["generated_speech"].tolist(), judge_of_grammar, similarity, p.gruen_parity)
)
by_job(speeches, gruen.COLUMNS)

# %% [markdown]
# The worst and the best by this measure; often the worst has a sentence that is none.

# %%
extremes(speeches, "GRUEN")

# %% [markdown]
# The parts add up to the score: the table by model says which of them tells speeches apart. Redundancy and focus are near 0
# for most, so grammar decides, and one smooth sentence that says nothing can come first.
#
# ## BERTScore: what members said, piece by piece
#
# The references are the corpus's speeches of the same context, chosen by the prompt alone and without its debate
# and speaker: the same for every model and for the member who answered it.

# %%
references = read_references(this_run.stage_folder("02_dataset"), speeches["prompt_id"].tolist())
rarity = all_references(this_run.stage_folder("02_dataset"))  # of all prompts, so that no weight depends on who failed one
counts = pd.Series([len(texts) for texts in references]).value_counts().sort_index()
this_run.note("speeches_by_references", {str(n): int(count) for n, count in counts.items()})
print("speeches by number of references:", counts.to_dict())
print("first reference of the first prompt:", references[0][0][:300] if references[0] else "none")

# %% [markdown]
# Each piece $x_i$ of a speech finds its most similar piece $y_j$ in a reference: precision; the other way round: recall (paper 4.1
# (2), Zhang et al. 2020). The vectors have length one; $u_i$ and $v_j$ are the pieces' weights, which sum to one:
#
# $$ P = \sum_i u_i \max_j x_i^\top y_j, \qquad R = \sum_j v_j \max_i x_i^\top y_j, \qquad F_1 = \frac{2PR}{P + R} $$
#
# Over several references each takes its highest value.

# %%
from parliabench_utils.metrics import bertscore
from parliabench_utils.models.embeddings import TokenEncoder

matcher = TokenEncoder(p.bertscore_encoder, p.bertscore_layer)
weighing = {"idf": p.bertscore_idf, "rescale": p.bertscore_rescale, "idf_texts": rarity}
scores = bertscore.bertscore(texts, references, matcher, **weighing)
for column, values in zip(["BERTScore P", "BERTScore R", "BERTScore F1"], scores, strict=True):
    speeches[column] = values
    signatures[column] = bertscore.signature(matcher, p.bertscore_idf, p.bertscore_rescale)
by_job(speeches, ["BERTScore P", "BERTScore R", "BERTScore F1"])

# %% [markdown]
# What is a high value? Every two English texts share many pieces. The speeches against the references of *another*
# prompt give the level from which to read the table above:

# %%
ids, by_prompt = sorted(set(speeches["prompt_id"])), dict(zip(speeches["prompt_id"], references, strict=True))
following = dict(zip(ids, ids[1:] + ids[:1], strict=True))
others = [by_prompt[following[prompt]] for prompt in speeches["prompt_id"]]
floor = bertscore.bertscore(texts, others, matcher, **weighing)[2]
print(f"F1 against the next prompt's references: {floor.mean():.3f}; its own: {speeches['BERTScore F1'].mean():.3f}")

# %% [markdown]
# If the two are close, BERTScore says that both are English speeches and little more. The ends of the scale:

# %%
extremes(speeches, "BERTScore F1")

# %% [markdown]
# ## MoverScore: how far the words have to travel
#
# The least total way that the pieces of a speech, weighted by their rarity $u_i$, must go to become those of a reference with
# weights $v_j$ (paper 4.1 (2), Zhao et al. 2019), and the mean over the references:
#
# $$ \mathrm{MoverScore} = \frac{1}{1 + \mathrm{EMD}}, \qquad
#    \mathrm{EMD} = \min_{T \ge 0} \sum_{i,j} T_{ij} \lVert x_i - y_j \rVert, \quad \sum_j T_{ij} = u_i, \quad \sum_i T_{ij} = v_j $$
#
# The way is an exact optimal transport.

# %%
from parliabench_utils.metrics import moverscore

mover, fixed = TokenEncoder(p.moverscore_encoder, p.moverscore_layer), rarity if p.moverscore_idf == "references" else None
way = {"idf": p.moverscore_idf != "off", "over": p.moverscore_over, "cost": p.moverscore_cost}
signatures["MoverScore"] = moverscore.signature(mover, **way, fixed_idf=fixed is not None)
signatures["MoverScore"]


# %%
def move(job):
    own, chosen = job["generated_speech"].tolist(), [references[i] for i in job.index]
    return moverscore.moverscore(own, chosen, mover, **way, idf_texts=fixed, n_threads=p.n_threads)


speeches["MoverScore"] = per_job(speeches, move)
by_job(speeches, ["MoverScore"])

# %%
extremes(speeches, "MoverScore")

# %% [markdown]
# ## What was cut
#
# A reader sees no more than its limit: so many words for perplexity, so many pieces of a sentence for GRUEN's
# classifier, so many pieces of a speech or reference for the two matchers. The share of speeches of which a metric saw
# only a part:

# %%
of_grammar = gruen.truncated(texts, judge_of_grammar, p.gruen_parity)
seen = {"PPL": speeches["n_words"] > p.max_words, "GRUEN": of_grammar}
cut = pd.DataFrame(seen | {"BERTScore": matcher.truncated(texts), "MoverScore": mover.truncated(texts)})
speeches[[f"truncated {metric}" for metric in cut]] = cut.astype(int)
speeches["n_truncated"] = cut.sum(axis=1)
cut.groupby([speeches["model"], speeches["type"]], sort=False).mean().round(3)

# %%
chosen = sorted({text for group in references for text in group})
cut_references = {"BERTScore": int(matcher.truncated(chosen).sum()), "MoverScore": int(mover.truncated(chosen).sum())}
print(f"of {len(chosen)} references were cut: {cut_references}")

# %% [markdown]
# ## All six together

# %%
from parliabench_utils.metrics.speeches import boxes

shown = ["PPL", "Dist-2", "Self-BLEU", "GRUEN", "BERTScore F1", "MoverScore"]
boxes(speeches.assign(**{"Self-BLEU": same_prompts}), shown).show()

# %% [markdown]
# Two metrics that rise and fall together say one thing twice; one that follows length says something about length. Rank
# correlations are taken within each model and type, the members' own among them, and averaged: over all speeches at once
# two metrics would seem to agree for no other reason than that models differ in both.

# %%
from parliabench_utils.metrics.speeches import rank_correlations

rank_correlations(speeches, [*shown, "n_words"])[0].round(2)

# %% [markdown]
# ## What we learned
#
# Each number has its price: perplexity likes repetition, distinct-n and Self-BLEU punish the phrases that make a
# speech parliamentary, GRUEN trusts two small models, and BERTScore moves within a narrow band above what another prompt's
# references give. The members' own row is the yardstick, also where it is not the best: real speech surprises a small
# language model more than that model's own does. Written: one table a model and type with a
# signature for each metric; speeches without a value are NaN and counted in the manifest. Next: notebook 06 asks
# whether a speech sounds like its party, 07 asks a judge.

# %%
from parliabench_utils.metrics.speeches import correlations, write_scores
from parliabench_utils.run.artefacts import write_csv

dist, parts = [f"Dist-{n}" for n in (1, 2, 3, 4)], gruen.COLUMNS[:-1]
columns = ["PPL", *dist, "Self-BLEU", *parts, "BERTScore P", "BERTScore R", "BERTScore F1", "MoverScore"]
columns += [name for name in signatures if name not in columns]
columns += ["n_tokens", "n_truncated", *(f"truncated {metric}" for metric in cut)]
read_by_08 = {"Self-BLEU": {"group": p.self_bleu_group, "max_n": p.self_bleu_n}}  # it is taken again among the compared speeches
write_scores(this_run, speeches, columns, signatures | {"settings": read_by_08})
if this_run.writes_summary:
    write_csv(this_run.stage_folder() / "summary/correlations.csv", correlations(speeches, [*shown, "n_words"]))

# %% [markdown]
# What the manifest keeps beside the files:

# %%
this_run.note("signatures", signatures)
this_run.note("undefined", speeches[columns].isna().sum().loc[lambda n: n > 0].to_dict())
this_run.note("truncated", {metric: int(count) for metric, count in cut.sum().items()})
this_run.note("truncated_references", cut_references)
this_run.note("failed_in_04", speeches.attrs["failed"])
this_run.finish()
