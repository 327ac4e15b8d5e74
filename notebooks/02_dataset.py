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
# # 02 · Dataset: which speeches, which prompts, compared with what
#
# **Question.** Which of the utterances are speeches worth learning from, how are they divided, and what will the models be asked?
#
# **In the paper:** sections 3.1 (steps 3 and 4), 3.2, 5.2 and 5.3, Tables 3 and 4, Figure 2. **Reads:** `01_ingest/speeches.parquet`.
# **Writes:** `train.jsonl`, `test.jsonl`, `prompts.jsonl`, `references.jsonl`, `dropped.csv` and a card in `02_dataset/`; what later
# notebooks only read in `02_dataset/shared/`; the human speeches in `04_generate/human/human/`. **Takes:** under a minute in
# the demo; embedding the speeches is most of it.

# %% tags=["parameters"]
run = "demo"  # name of the folder under outputs/
profile = "demo"  # which parameter files were read
seed = 42  # of the split and of the draw of prompts (the split's seed: project page)
data_root = "data"  # where fetched corpora are
models = ["smollm2-135m", "smollm2-135m-nf4"]  # not used here; all notebooks share these keys
types = ["baseline", "fine-tuned"]  # not used here
n_threads = 2  # for numerical libraries
offline = True  # never ask a model hub
min_speeches = 8  # an affiliation needs this many speeches; the paper: 1000 (section 3.1)
min_words = 35  # a speech has more words than this; the paper's project page: 35
max_words = 400  # and fewer than this; the project page: 1580
excluded_sections = ["Business of the House", "Point of Order", "Points of Order"]  # project page
topic_classifier = "embedding"  # or transformers, or kevlar (the paper's, section 3.1 step 4)
topic_model = ""  # transformers: a folder or id of the hub; kevlar: one of its service's models
topic_url = ""  # kevlar: where its service listens
topic_rule = "best"  # the domain of the best concept (the paper's), or `sum` of its concepts' scores; not for embedding
classify_all = False  # True: no direct mapping of topics, the classifier for all
topic_audit = 1000  # directly mapped speeches that are classified all the same, to see how the two agree
encoder = "all-MiniLM-L6-v2"  # for topics, references and centroids; the project page: all-mpnet-base-v2
long_text = "chunk"  # what is over the encoder's limit: averaged in, or `cut` off; as in 06
split = "by-debate"  # random (the paper's), by-debate, by-speaker, by-date
train_share = 0.8  # section 5.2
near_copy = 0.5  # a test speech is a near-copy if one training speech has this share of its runs of 8 words
n_prompts = 16  # the paper: 3000 (section 5.3)
question_share = 0.2  # of prompts that are real questions; the paper: 0.1 (section 5.3)
min_per_party = 1  # prompts that each affiliation gets at least; weights undo it
min_context_speeches = 3  # training speeches that a prompt's context needs, its own debate and speaker left out
n_references = 3  # human speeches that a generated one is compared with; the paper: 5 (section 4.1)
n_shards = 1  # parts into which notebook 04 can be cut

# %%
from parliabench_utils.run import start

this_run = start("02_dataset", globals())
p = this_run.params

# %% [markdown]
# ## What is kept
#
# Questions stay only as prompts of their answers; procedure, speakers without a party and presiding officers go; so do the sections
# that plan the House's own business, and speeches too short or too long. The threshold on affiliations comes last. Texts are
# mended on the way: broken Unicode, and all quotation marks made plain. Some parliaments print no headings: a sitting without any is
# one debate, whose section is its day.

# %%
import pandas as pd

from parliabench_utils.corpus.cleaning import with_lost_characters
from parliabench_utils.corpus.dataset import KeepRules, keep_speeches, without_headings

speeches = pd.read_parquet(this_run.stage_folder("01_ingest") / "speeches.parquet")
rules = KeepRules(p.min_speeches, p.min_words, p.max_words, p.excluded_sections)
kept, dropped = keep_speeches(speeches, rules)
print(f"{len(speeches):,} utterances = {len(kept):,} kept + {len(dropped):,} dropped")
headless = speeches.loc[without_headings(speeches), "sitting_id"].nunique()
print(f"{headless} of {speeches['sitting_id'].nunique()} sittings have no heading")
lost = with_lost_characters(kept)
print(f"{len(lost)} speeches kept with a lost character (U+FFFD)", *lost[:20])
dropped["rule"].value_counts().to_frame("utterances")

# %% [markdown]
# Each utterance is in exactly one of the two tables, and each dropped one has its reason. Texts that occur more than once are
# reported and stay: formulas of thanks are part of how Parliament speaks.

# %%
from parliabench_utils.corpus.dataset import repeated_texts

repeated = repeated_texts(kept)
print(f"{len(repeated)} texts occur more than once, in {repeated['times'].sum()} speeches")
repeated.head(3)

# %% [markdown]
# ## Topics
#
# The corpus names a CAP topic (from release 5.0 on); the benchmark speaks of the 21 EuroVoc domains. Table 4 maps 13 CAP categories
# directly. For the rest, and for a corpus without topics, a classifier decides: the paper's KEVLAR where its service runs, any
# sequence classifier with EuroVoc labels, or, offline, the domain whose written descriptions are nearest to the speech and its
# debate's heading. Method and score are in every row.

# %%
from parliabench_utils.corpus.dataset import drop_without_topic
from parliabench_utils.corpus.topics import assign_topics
from parliabench_utils.corpus.topics import topic_classifier as make_classifier
from parliabench_utils.models.embeddings import SentenceEncoder

sentences = SentenceEncoder(p.encoder, p.long_text)
classifier = make_classifier(p.topic_classifier, sentences, p.topic_url, p.topic_model, p.topic_rule)
kept, dropped = drop_without_topic(assign_topics(kept, classifier, p.classify_all), dropped)
kept.groupby("topic_method").agg(speeches=("topic", "size"), domains=("topic", "nunique"), mean_score=("topic_score", "mean"))

# %% [markdown]
# Table 4 as run: which way the speeches of each category went, and how many.

# %%
from parliabench_utils.corpus.overview import by_paper_keys, topic_table

topic_table(by_paper_keys(kept))

# %% [markdown]
# How far can the classifier be trusted? Where there is a direct mapping we can ask it for its own opinion. Rows are what Table 4
# says, columns what the classifier says, shades are shares of the row. Right of the line stand the eight domains that no direct
# mapping reaches: a speech on Brexit that the corpus files under International Affairs can never become European Union.

# %%
from parliabench_utils.corpus.overview import draw_confusion
from parliabench_utils.corpus.topics import confusion, second_opinion

opinions = second_opinion(kept, classifier, p.topic_audit, p.seed)
figure = draw_confusion(confusion(opinions)) if len(opinions) else None
print(f"{len(opinions):,} directly mapped speeches compared (none where the corpus has no topics of its own)")

# %% [markdown]
# Read both ways, this is how often the classifier finds the mapped domain, and what the direct mapping costs: `unreachable` is the
# share of a category that the classifier would put into one of those eight. `classify_all` lets it. Many disagreements are real
# ambiguities (a debate on energy bills is Energy or Economics), others are its mistakes; the table cannot tell which.

# %%
from parliabench_utils.corpus.topics import agreement, direct_cost

agreed = agreement(opinions)
print(agreed or "nothing to compare")
direct_cost(opinions).round(2)

# %% [markdown]
# ## The data set: Table 3 and Figure 2

# %%
from parliabench_utils.corpus.overview import dataset_numbers

print(f"{kept['n_words'].sum():,} words in all")
dataset_numbers(kept, speeches.attrs)

# %%
from parliabench_utils.corpus.overview import party_table

party_table(by_paper_keys(kept))

# %%
import matplotlib.pyplot as plt

from parliabench_utils.corpus.overview import draw_dataset

drawn = draw_dataset(by_paper_keys(kept), plt.figure(figsize=(11, 9), layout="constrained"))

# %% [markdown]
# (a) Many short speeches, few long ones, as in the paper. (b) to (d) show when they were given, what they are about, and from where
# on the scale. Notebook 09 draws the final figure.
#
# ## The split
#
# The paper splits single speeches at random. Neighbours in a debate then stand on both sides, and a model that has learnt the one
# has an easier time with the other. The table shows which share of the test speeches has such a companion in training: a near-copy
# (one training speech has at least the share `near_copy` of its runs of words), a speech of the same debate, speaker or day.

# %%
from parliabench_utils.corpus.dataset import every_split, leak_table

divided, impossible = every_split(kept, p.train_share, p.seed)
print(*impossible, sep="\n")
leaks = leak_table(kept, divided, p.near_copy)
leaks.style.format("{:.1%}", subset=leaks.columns[2:])

# %% [markdown]
# A random split leaks by its nature; the paper does not discuss it. The other splits keep a debate, a day or a speaker whole on
# one side, each its own kind. Word for word, the closest pairs across the random split are:

# %%
from parliabench_utils.corpus.dataset import closest_copies

closest_copies(*divided["random"]).round(2)

# %%
from parliabench_utils.corpus.dataset import to_records

train, test = (pd.DataFrame(to_records(part)) for part in divided[p.split])
print(f"split {p.split}: {len(train):,} training speeches, {len(test):,} test speeches; one of them:")
train.iloc[0].to_frame("value")

# %% [markdown]
# ## The prompts
#
# A prompt is the context of a test speech, with the generic instruction (our wording) or the question that the speech answered.
# Places are shared out over party and house like the test set, questions and generic prompts apart. A prompt is drawn only if its
# context (party, topic and house; if need be party and topic; if need be party) has enough training speeches by other people in
# other debates.

# %%
from parliabench_utils.corpus.prompts import PromptRules, draw_prompts

prompt_rules = PromptRules(p.n_prompts, p.question_share, p.min_context_speeches, p.min_per_party, p.n_shards)
prompts, report = draw_prompts(train, test, prompt_rules, p.seed)
print(report)
pd.DataFrame(prompts)[["kind", "Party", "House", "Topic", "context_id", "weight", "shard"]]

# %% [markdown]
# A weight over 1 stands for an affiliation, House and kind with fewer prompts than its share of the test set, under 1 for one that
# was lifted.
# One prompt whole:

# %%
next((prompt for prompt in prompts if prompt["kind"] == "question"), prompts[0])

# %% [markdown]
# ## The references
#
# BERTScore and MoverScore compare a generated speech with human ones of the same context. They are chosen once, for all models: the
# training speeches nearest to the prompt's instruction and section, never from its own debate or by its own speaker.

# %%
from parliabench_utils.corpus.prompts import Contexts, choose_references

references = choose_references(prompts, Contexts(train), sentences, p.n_references, p.min_context_speeches)
found = pd.DataFrame(references).merge(train[["speech_id", "Party", "Section", "Speech"]], on="speech_id")
print(prompts[0]["Party"], "·", prompts[0]["Section"])
found[found["prompt_id"] == prompts[0]["prompt_id"]][["rank", "similarity", "Party", "Section", "Speech"]]

# %%
found.groupby("rank")["similarity"].describe()[["mean", "min", "max"]].round(3)

# %% [markdown]
# ## Checks
#
# What must hold whatever the corpus: no speech on both sides, every prompt from the test set, every reference from training and of
# the prompt's party, no text that is empty, every utterance accounted for.

# %%
own = found.merge(
    pd.DataFrame(prompts)[["prompt_id", "Party", "sitting_id", "speaker_id"]], on="prompt_id", suffixes=("", "_asked")
)
checks = {
    "no speech in train and test": not set(train["speech_id"]) & set(test["speech_id"]),
    "prompts are test speeches": {prompt["speech_id"] for prompt in prompts} <= set(test["speech_id"]),
    "references are training speeches": {row["speech_id"] for row in references} <= set(train["speech_id"]),
    "references share the party": bool((own["Party"] == own["Party_asked"]).all()),
    "no empty speech": bool((pd.concat([train, test])["Speech"].str.len() > 0).all()),
    "kept + dropped = read": len(kept) + len(dropped) == len(speeches),
}
assert all(checks.values()), checks
pd.Series(checks, name="holds").to_frame()

# %% [markdown]
# ## Writing

# %%
from parliabench_utils.corpus.dataset import human_rows, write_card
from parliabench_utils.run.artefacts import write_csv, write_jsonl

out = this_run.stage_folder()
for name, rows in {"train": train, "test": test}.items():
    write_jsonl(out / f"{name}.jsonl", rows.to_dict("records"))
write_jsonl(out / "prompts.jsonl", prompts)
write_jsonl(out / "references.jsonl", references)
write_csv(out / "dropped.csv", dropped)

# %%
human = human_rows(prompts, dict(zip(test["speech_id"], test["Speech"], strict=True)), p.seed)
write_jsonl(this_run.stage_folder("04_generate") / "human" / "human" / "shard-0.jsonl", human)
facts = {"training speeches": len(train), "test speeches": len(test), "words": int(kept["n_words"].sum())}
facts |= {
    "texts that occur more than once": len(repeated),
    "speeches with a lost character (U+FFFD)": len(lost),
    "sittings without a heading": headless,
    "prompts": len(prompts),
    "question prompts": report["questions"],
}
facts |= {f"utterances dropped: {rule}": int(n) for rule, n in dropped["rule"].value_counts().items()}
write_card(out, kept, facts, p.model_dump(), speeches.attrs)

# %% [markdown]
# ## What later notebooks only read
#
# Two things are learnt from training speeches once, here, so that no later job does it again: the centroids of parties and
# orientations (for notebook 06), and a small classifier that tells real sentences from corrupted ones (for GRUEN in notebook 05).

# %%
from parliabench_utils.metrics.alignment import write_centroids
from parliabench_utils.metrics.gruen import fit_acceptability

write_centroids(out / "shared", train, sentences)
acceptability = fit_acceptability(out / "shared", train["Speech"].tolist(), p.seed)
acceptability

# %% [markdown]
# The classifier's held-out AUC is above: 0.5 would be guessing, 1 perfect. It is weak evidence for fluent text, and GRUEN's signature
# says which classifier was used.
#
# ## What we learned
#
# The speeches that count, in the paper's format with ids and the way each topic was found; a split whose leaks are known; prompts
# whose contexts are wide enough to be scored; references that are the same for every model. What was dropped is in
# `dropped.csv`, with a reason each. Next, [03](03_finetune.py) tunes the models on `train.jsonl`.

# %%
this_run.note("dropped", dropped["rule"].value_counts().to_dict())
this_run.note("repeated_texts", {"texts": len(repeated), "speeches": int(repeated["times"].sum())})
this_run.note("prompts", report)
this_run.note("topics", {"classifier": classifier.signature, **kept["topic_method"].value_counts().to_dict()})
this_run.note("topic_agreement_with_direct", agreed)
this_run.note("leaks", leaks.to_dict("index"))
this_run.note("acceptability", acceptability)
this_run.finish()
