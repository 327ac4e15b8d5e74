"""transformers' names of schedules and optimizers that notebook 03 takes; its own lists would load torch at every command.

>>> "adamw_8bit" in Optimizer.__args__
True
"""

from typing import Literal

Scheduler = Literal[  # those that need no setting and no loss of their own
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
]
Optimizer = Literal[  # those of torch and bitsandbytes; the others need a package that we do not install
    "adamw_torch",
    "adamw_torch_fused",
    "adamw_8bit",
    "adamw_bnb_8bit",
    "paged_adamw_8bit",
    "paged_adamw_32bit",
    "ademamix",
    "ademamix_8bit",
    "paged_ademamix_8bit",
    "paged_ademamix_32bit",
    "lion_8bit",
    "lion_32bit",
    "paged_lion_8bit",
    "paged_lion_32bit",
    "rmsprop",
    "rmsprop_bnb",
    "rmsprop_bnb_8bit",
    "rmsprop_bnb_32bit",
    "adafactor",
    "adagrad",
    "sgd",
]
