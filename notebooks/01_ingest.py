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
# # 01 · Ingest: who said what, for which party, on which day
#
# **Question.** What is in the record of the UK Parliament, and can each utterance be given the party that its speaker belonged to
# on that very day? Everything the benchmark says later rests on the answer.
#
# **In the paper:** section 3.1, steps 1 to 3. **Reads:** a ParlaMint corpus in TEI (the embedded one in the demo).
# **Writes:** `01_ingest/speeches.parquet`, one row an utterance, and `01_ingest/dropped.csv`, a row for each thing taken out.
# **Takes:** seconds in the demo, about a minute for the whole corpus.

# %% tags=["parameters"]
run = "demo"  # name of the folder under outputs/
profile = "demo"  # which parameter files were read
seed = 42  # here it only chooses the examples that are shown
data_root = "data"  # where fetched corpora are
models = ["smollm2-135m", "smollm2-135m-nf4"]  # not used here; all notebooks share these keys
types = ["baseline", "fine-tuned"]  # not used here
n_threads = 2  # for numerical libraries
offline = True  # never ask a model hub
corpus = "mini"  # the embedded corpus; else a root file or its folder. The paper: ParlaMint-GB 5.0 (section 3.1)
workers = 1  # processes that read files; rows and their order do not depend on it
on_error = "stop"  # or "quarantine": set aside a file that cannot be read

# %%
from parliabench_utils.run import start

this_run = start("01_ingest", globals())
p = this_run.params

# %% [markdown]
# ## What the corpus looks like
#
# ParlaMint is TEI: one XML file a sitting, in it a `div` a debate, in it `u` elements, the utterances. `u/@who` points into a list of
# persons, `u/@ana` holds the speaker's role and, from release 5.0 on, a topic. Headings and notes stand beside the utterances.
# The root file names the people, the parties and the sittings:

# %%
from parliabench_utils.corpus.tei import open_corpus
from parliabench_utils.run.project import corpus_folder

folder = corpus_folder(p.corpus, p.data_root)
source, _ = open_corpus(folder, stop=p.on_error == "stop")
print(f"{source.title}, edition {source.edition}: {len(source.files):,} sittings, {len(source.people):,} people")

# %% [markdown]
# This is how the first debate begins, with long segments cut:

# %%
from parliabench_utils.corpus.overview import debate_xml

print(debate_xml(source.files))

# %% [markdown]
# Nothing in an utterance says which party is speaking. That is in the list of persons, and it depends on the date.
#
# ## From XML to a table
#
# `read_corpus` reads the files one after the other and gives one row an utterance. The house is that of the sitting and never that
# of the speaker; the section is the debate's heading; paragraphs are joined with the full stop that ParlaMint strips from
# all but the last one; what is said *about* a speech (notes, interruptions encoded as elements, gaps) is not part of it.

# %%
import pandas as pd

from parliabench_utils.corpus import read_corpus

pd.set_option("display.max_colwidth", 200)
speeches = read_corpus(folder, workers=p.workers, on_error=p.on_error)
told = ("dropped", "unlisted", "not_listed", "moved")
dropped, unlisted, not_listed, moved = (speeches.attrs.pop(key) for key in told)
print(f"{len(speeches):,} utterances, {speeches['sitting_id'].nunique():,} sittings, {speeches['n_words'].sum():,} words")
speeches.groupby(["house", "kind"], dropna=False).agg(utterances=("speech_id", "size"), words=("n_words", "sum"))

# %% [markdown]
# `kind` tells speeches from the questions that they answer and from pure procedure; the rules come below. One row in full:

# %%
speeches[speeches["kind"] == "speech"].head(1).T

# %% [markdown]
# Nothing may be lost on the way. An utterance begins with the tag `<u>` and with nothing else, so counting tags in the files' bytes
# is enough to check it:

# %%
from parliabench_utils.corpus.overview import count_utterances

set_aside = [row["text"] for row in dropped if row["rule"] in ("unreadable file", "annotated file")]
empty = len(dropped) - len(set_aside)
in_files = count_utterances(source.files)
print(f"{in_files:,} <u> elements in {len(source.files):,} files; {len(speeches):,} rows, {empty} empty ones dropped")
print(f"{len(set_aside)} file{'s' * (len(set_aside) != 1)} set aside", *set_aside, sep="\n  ")

# %% [markdown]
# Rows and empty utterances add up to the tags, less what stands in files set aside. A file that cannot be read stops this notebook
# with its name and line; with `on_error="quarantine"` it is set aside and named here, in `dropped.csv` and in the manifest, and the
# rest goes on without it. Three other things are no error but worth knowing:

# %%
print(f"{len(unlisted)} utterances by nobody whom the corpus lists", *unlisted[:5], sep="\n  ")
print(f"{len(not_listed)} day files that the root does not list, not read", *not_listed[:5], sep="\n  ")
print(f"{len(moved)} files that lie elsewhere than the root says, found by their names", *moved[:5], sep="\n  ")

# %% [markdown]
# Characters can be lost before us: where somebody could not read a byte, U+FFFD (�) stands in its place, and no rule brings back what
# was there. Such utterances stay as they are; here they are counted and named.

# %%
from parliabench_utils.corpus.cleaning import with_lost_characters

lost = with_lost_characters(speeches)
print(f"{'WARNING: ' if lost else ''}{len(lost)} utterances with a lost character (U+FFFD)", *lost[:20])

# %% [markdown]
# ## A party at a date
#
# Members change party, parties split, old spells are left open when new ones start. The paper calls the remedy *temporal alignment*
# (section 3.1, step 2) and gives no formula; ours is this. Of a speaker's spells $i$ in a party or parliamentary group, with first
# day $f_i$ and last day $t_i$ (an open one is $-\infty$ or $+\infty$), the affiliation on day $d$ is
#
# $$ a(d) = \operatorname*{argmax}_{i \,:\, f_i \le d \le t_i} f_i $$
#
# and of several that began on the same day the one listed last. Whoever heads a group belongs to it, and beside a parliamentary
# group a party outside it does not count. Where no spell holds the party is empty: one of another time is never borrowed. The most
# travelled speaker of this corpus:

# %%
from parliabench_utils.corpus.overview import most_travelled

person = most_travelled(source.people, speeches["speaker_id"])
print(person.name)
pd.DataFrame([(item.ref, item.start, item.end) for item in person.parties], columns=["party", "from", "to"])

# %% [markdown]
# The answer can change only on a day on which a spell begins or ends. On each of them the rule says:

# %%
from parliabench_utils.corpus.people import explain_affiliation

days = sorted({day for item in person.parties for day in (item.start, item.end) if day})
for day in days:
    affiliation, n, rule = explain_affiliation(person.affiliations, day)
    print(f"{day}  {affiliation.ref if affiliation else '(none)':<14} {n} candidate(s), rule: {rule}")

# %% [markdown]
# With two candidates an old spell was still open, or ended on the day on which the next one began. How often each rule decided:

# %%
by_rule = speeches.groupby(["affiliation_rule", "n_candidate_parties"]).agg(utterances=("speech_id", "size"))
by_rule.assign(share=(by_rule["utterances"] / len(speeches)).round(4))

# %% [markdown]
# `no speaker` and `unknown speaker` are utterances without a name, or with one that is not in the list; `several speakers` is what
# more than one person said at once, which is no party's; `none` is a speaker without a party on that day. They stay in this table
# with an empty party, and notebook 02 drops them by name.
#
# The orientation of a party comes from the corpus's own list of organisations. Releases before 4.0 state none; for those the UK's
# values of release 4.0 are used, and this line says which it was. Where a parliamentary group states none, the party behind it does.

# %%
origin = {"corpus": "the corpus", "table": "the table of 4.0", "none": "nowhere"}[source.orientation_source]
print("orientations from:", origin)
speeches.pivot_table(index=["party", "orientation"], columns="house", values="speech_id", aggfunc="count", fill_value=0)

# %% [markdown]
# ## Questions and what they prompt
#
# Part of what is said was asked for, and the paper keeps those questions as prompts. No element marks them; their words do:
#
# - Commons: an utterance that begins with its number on the Order Paper, `4.`, topical `T2.`, or a part `(a)`;
# - Lords: "To ask His (Her) Majesty's Government …";
# - urgent: "(Urgent Question):" in the Commons, a private notice question in the Lords (a note announces it);
# - notes that hold a question's words ("To ask …", or a number and "What …"), should a volume print them so.
#
# Questions of one debate are often grouped. They wait until somebody who asked none of them speaks: that is the answer, and it
# carries all of them. The Speaker's words in between change nothing. The exchange that follows answers no listed question. A peer who
# asks and goes on to speak at length opens a debate: that is a speech, and of those who follow it is the minister who answers.

# %%
from parliabench_utils.corpus.overview import questions_and_answers, questions_by_rule

questions_by_rule(speeches)

# %% [markdown]
# A question without an answer got a minister's "No." and no speech, or its answer stands in another debate. The other side:

# %%
answers, prompts = speeches["answers"].str.len(), speeches["prompts"].str.len()
print(f"{(prompts > 0).sum()} answers, {(answers > 1).sum()} of them to several questions (the most: {answers.max()}),")
print(f"{((prompts > 0) & (answers == 0)).sum()} to questions that stand in notes alone. Some answers with what was asked:")
questions_and_answers(speeches, 10, p.seed)

# %% [markdown]
# Numbers and letters are gone from the questions, and equal questions of several members are kept once. The ids of all of them are
# in `answers`.
#
# ## Procedure
#
# An utterance that is nothing but the conduct of business is no speech. Each rule matches a *whole* utterance, so that a speech that
# begins with a formula is left alone; the last rule is the Speaker's role.

# %%
from parliabench_utils.corpus import cleaning
from parliabench_utils.corpus.overview import examples_of_rules, procedure_rows

examples_of_rules(procedure_rows(speeches), [*cleaning.PROCEDURAL_RULES, cleaning.CHAIR_RULE])

# %% [markdown]
# ## Noise inside speeches
#
# Hansard's editors write into the text: interruptions, references to columns, the question put when a speech ends a debate. These
# pieces are cut out of speeches (only of speeches), and each one becomes a row of `dropped.csv`.

# %%
clean, noise = cleaning.clean_speeches(speeches)
noise = pd.DataFrame(noise, columns=["id", "rule", "text"])
examples_of_rules(noise, [f"noise: {name}" for name in cleaning.NOISE_RULES])

# %% [markdown]
# What is left in square brackets is counted and shown, and stays: mostly it is a word that the editors put into a quotation.

# %%
suspects = clean.loc[clean["kind"] == "speech", "text"].map(cleaning.suspect_brackets).explode().dropna()
print(f"{len(suspects)} bracketed pieces left:", *suspects.unique()[:8])

# %% [markdown]
# ## What we have
#
# Some speeches, drawn at random, as the benchmark will see them:

# %%
said = clean[clean["kind"] == "speech"]
for row in said.sample(min(3, len(said)), random_state=p.seed).itertuples():
    print(f"{row.date:%d %B %Y}, {row.house}, {row.section}\n{row.speaker_name} ({row.party}): {row.text[:400]}\n")

# %% [markdown]
# Utterances go into one table, whatever was taken out into another:

# %%
from parliabench_utils.run.artefacts import write_csv, write_parquet

out = this_run.stage_folder()
removals = pd.concat([pd.DataFrame(dropped, columns=noise.columns), noise], ignore_index=True)
write_parquet(out / "speeches.parquet", clean)
write_csv(out / "dropped.csv", removals)
noise_alone = int((clean["kind"] == "procedural").sum() - (speeches["kind"] == "procedural").sum())
print(f"{len(clean):,} rows written, {noise_alone} speeches were noise alone, {len(set_aside)} files set aside")
print(f"words: {speeches['n_words'].sum():,} read, {clean['n_words'].sum():,} kept")

# %% [markdown]
# ## What we learned
#
# Every utterance has its day, house, debate and, where the corpus knows it, the party of that day with the rule that decided.
# Questions are told apart from speeches and travel with their answers. `speeches.parquet` holds every utterance, procedure too;
# `dropped.csv` holds each piece that was cut out, by rule. Next, [02](02_dataset.py) decides which speeches make the benchmark.

# %%
this_run.note("dropped", removals["rule"].value_counts().to_dict())
this_run.note("files_set_aside", set_aside)
this_run.note("unlisted_speakers", len(unlisted))
this_run.note("files_not_listed", not_listed)
this_run.note("files_moved", moved)
this_run.note("utterances_with_lost_characters", lost)
this_run.note("kinds", clean["kind"].value_counts().to_dict())
this_run.note("affiliation_rules", clean["affiliation_rule"].value_counts().to_dict())
this_run.note("corpus", {key: speeches.attrs[key] for key in ("corpus_id", "orientation_source", "n_files")})
this_run.finish()
