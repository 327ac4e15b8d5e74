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
# # 03 · Fine-tune: teach a base model how the House speaks
#
# **Question.** Can a small adapter make a language model speak like a member of a given party, in a given House, on a
# given topic?
#
# **In the paper:** sections 5.2 and 11.2, Tables 6 and 7. **Reads:** `02_dataset/train.jsonl`, and some of
# `test.jsonl` for the held-out loss. **Writes:** `03_finetune/<model>/`: the adapter, `train_log.jsonl` and a model
# card. **Takes:** about a minute a model in the demo, hours on a GPU for the paper's models.

# %% tags=["parameters"]
run = "demo"  # name of the folder under outputs/
profile = "demo"  # which parameter files were read
seed = 42  # chooses the held-out speeches; the adapters have lora_seed
data_root = "data"  # not used here; all notebooks share these keys
models = ["smollm2-135m", "smollm2-135m-nf4"]  # files of params/models/; the paper's five: Table 5
types = ["baseline", "fine-tuned"]  # not used here: what is made here is the fine-tuned one
n_threads = 2  # for numerical libraries
offline = True  # never ask a model hub
model = ""  # one of models: do only this one (the runner's --model)
type = ""  # not used here
shard = -1  # not used here
backend = "peft"  # peft runs anywhere; unsloth is faster on one GPU
n_processes = 1  # that share each batch, by torchrun: one a GPU; unsloth has one
lora_rank = 16  # Table 6
lora_alpha = 16  # Table 6
lora_dropout = 0.0  # Table 6
lora_seed = 3407  # Table 6, random state
batch_size = 4  # Table 7 has 64
gradient_accumulation = 1  # Table 7
learning_rate = 0.002  # Table 7's 2e-4 hardly moves in so few steps
scheduler = "linear"  # Table 7
warmup_share = 0.03  # Table 7: 3 % of the steps
weight_decay = 0.01  # Table 7
optimizer = "adamw_torch"  # Table 7: "adamw"
max_length = 256  # tokens of prompt and speech; Table 7 has 1,024
epochs = 1  # used where max_steps is 0
max_steps = 8  # 0: whole epochs; the demo stops early
loss_on = "answer"  # not stated; all takes the prompt's tokens too
packing = False  # several speeches in one row
group_by_length = False  # less padding, less random batches
gradient_checkpointing = False  # less memory, a third more time
held_out_rows = 8  # test speeches for the held-out loss
eval_every = 8  # steps
log_every = 2  # steps
save_every = 4  # steps between checkpoints
max_dropped_share = 0.0  # stop when more rows have nothing to learn from
sample_tokens = 80  # length of the sample before and after

# %%
from parliabench_utils.run import start

this_run = start("03_finetune", globals())
p = this_run.params

# %% [markdown]
# ## The speeches to learn from
#
# A training speech comes with its context: party, topic, section, orientation and House. The held-out speeches are
# from the test set of notebook 02.

# %%
import pandas as pd

from parliabench_utils.models.finetune import TrainingSettings, prepare_backend, training_rows

settings = TrainingSettings.from_params(p)
prepare_backend(settings)
train_rows, held_out = training_rows(this_run.folder, settings, p.seed)
print(f"{len(train_rows):,} training speeches, {len(held_out)} held out for the loss")
pd.DataFrame(train_rows)[["Party", "Topic", "House", "n_words"]].describe().fillna("")

# %% [markdown]
# ## What the model sees
#
# The system text is the paper's (section 11.3.1), the format is the model's own chat format. Notebook 04 renders its
# prompts with the same function. The loss is the mean negative log-likelihood of the tokens $x_t$ in $A$,
#
# $$ L = -\frac{1}{|A|} \sum_{t \in A} \log p(x_t \mid x_{<t}), $$
#
# where $A$ is what stands below the second line: the model learns to speak, not to repeat the question. (The paper does
# not say; `loss_on` takes the whole text instead.)

# %%
from parliabench_utils.models.finetune import masked_example
from parliabench_utils.models.prompting import encode_example
from parliabench_utils.models.specs import load_tokenizer, read_model_spec

names = [name for name, _ in this_run.model_types]
spec = read_model_spec(names[0])
tokenizer = load_tokenizer(spec)
print(masked_example(tokenizer, encode_example(spec, tokenizer, train_rows[0], p.max_length), settings))

# %% [markdown]
# ## Before we start
#
# LoRA (section 5.2, Table 6) leaves each weight matrix $W$ of the base as it is and learns beside it two thin ones of rank $r$,
#
# $$ W' = W + \frac{\alpha}{r}\, B A, \qquad B \in \mathbb{R}^{m \times r},\; A \in \mathbb{R}^{r \times n}, $$
#
# so that only $r\,(m + n)$ numbers a matrix are trained; QLoRA keeps $W$ in 4 bits.
#
# Counting first is cheaper than training on nothing. A row whose prompt fills all of `max_length` would bear no loss, and too many of
# them stop the notebook. `share_cut` is the share of speeches that are longer than the model may read. Memory and time are estimates
# from the model's size, the latter only an order of magnitude.

# %%
from parliabench_utils.models.finetune import plan

plans = pd.DataFrame([plan(read_model_spec(name), settings, train_rows) for name in names])
this_run.note("plan", plans.drop(columns="minutes, roughly").to_dict("records"))
plans.set_index("model").T

# %% [markdown]
# Where `max_steps` is 0, steps follow from the rows. With $N$ training speeches, batches of $b$, gradients accumulated over
# $g$ batches and $E$ epochs, one step sees an effective batch of $b\,g$ speeches, and Table 7's steps $S$ and warm-up $S_w$ are
#
# $$ S = \left\lfloor \frac{N}{b\,g} \right\rfloor E, \qquad S_w = \lceil \omega\, S \rceil . $$

# %%
from math import ceil

from parliabench_utils.models.finetune import derived_steps

n, b, g, n_epochs, omega = int(447_778 * 0.8), 64, 1, 2, 0.03  # the corpus, its training share, Table 7
paper_steps = derived_steps(n, batch_size=b, accumulation=g, epochs=n_epochs)
print(f"the paper: {paper_steps:,} steps of {b * g} speeches, {ceil(omega * paper_steps)} of them to warm up")
print(f"here: {plans['steps'].iloc[0]} steps of {p.batch_size * p.gradient_accumulation} speeches")

# %% [markdown]
# ## Training
#
# The base's weights $W$ stay as they are. Beside each projection of a layer stands a product of two small matrices,
# and these alone are trained (LoRA; sections 5.2 and 11.2, Table 6):
#
# $$ W' = W + \frac{\alpha}{r} B A, \qquad A \in \mathbb{R}^{r \times k},\; B \in \mathbb{R}^{d \times r}. $$
#
# $A$ is drawn, $B$ begins at zero, so that training starts from the base itself. QLoRA is the same on weights that are kept
# in four bits.

# %%
print(f"r = {p.lora_rank}, alpha = {p.lora_alpha}: alpha / r = {p.lora_alpha / p.lora_rank:g}")
print("trained beside", ", ".join(spec.lora_targets))

# %% [markdown]
# Losses are in nats a token. The step before training shows the base's own held-out loss. A run that was killed goes
# on from its last checkpoint, on the same schedule.

# %%
from parliabench_utils.models.finetune import finetune_model

results = {}
for name in names:
    print(f"\n{name}")
    results[name] = finetune_model(name, settings, this_run.folder, p.seed)
this_run.note("resumed_from_step", {name: result.resumed_from for name, result in results.items()})

# %%
from matplotlib import pyplot as plt

logs = pd.concat([pd.DataFrame(result.log).assign(model=name) for name, result in results.items()])
fig, axes = plt.subplots(1, len(results), figsize=(4.5 * len(results), 3), sharey=True, squeeze=False)
for ax, (name, log) in zip(axes[0], logs.groupby("model", sort=False), strict=True):
    log.dropna(subset="loss").plot(x="step", y="loss", ax=ax, color="0.6", label="training")
    log.dropna(subset="held_out_loss").plot(x="step", y="held_out_loss", ax=ax, marker="o", label="held out")
    ax.set(title=read_model_spec(name).display, xlabel="step", ylabel="loss, nats a token")
plt.show()

# %% [markdown]
# The grey line jumps since every batch holds other speeches; the dots are always the same speeches, so their fall is
# what was learned.

# %%
held = logs.dropna(subset="held_out_loss").groupby("model", sort=False)["held_out_loss"]
losses = pd.DataFrame({"before": held.first(), "after": held.last()}).assign(fall=lambda d: d["before"] - d["after"])
this_run.note("held_out_loss", losses.round(4).to_dict("index"))
losses.round(3)

# %% [markdown]
# ## One speech, before and after
#
# The likeliest words after the same prompt, first from the base, then with the adapter.

# %%
from textwrap import fill

from parliabench_utils.models.finetune import greedy_samples

for title, adapter in (("before", None), ("after", results[names[0]].adapter)):
    print(f"--- {names[0]}, {title} ---")
    print(fill(greedy_samples(names[0], held_out[0], p.sample_tokens, adapter), 110), "\n")

# %% [markdown]
# ## What we learned
#
# The manner comes first: a short training is enough for forms of address, for the third person and for an end in good
# time. What it does not give is facts. Whether the tuned speeches are *better* is what notebooks 05 to 07 measure.
# Written: an adapter, a log and a card for each model. Dropped: the rows in the column `dropped` above. Next:
# notebook 04 asks base and tuned model for speeches on the same prompts.

# %%
dropped = plans[["model", "dropped"]].rename(columns={"dropped": "rows"}).assign(reason="prompt fills max_length")
this_run.note("dropped", dropped.to_dict("records"))
this_run.note("determinism", "same adapter on the same CPU and thread count; a GPU may differ in the last digits")
this_run.finish()
