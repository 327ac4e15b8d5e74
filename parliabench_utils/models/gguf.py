"""Generation from a GGUF file by llama.cpp, where llama-cpp-python is installed: quantised models on a CPU.

A model file with `source: gguf` uses it. The draws are our own (`sampling.py`), row after row, so that a speech depends on its
own seed alone here too.

    from parliabench_utils.models.loading import load_model
    load_model("smollm2-135m-gguf", purpose="generate").model.complete([[1, 5]], [11], sampling, 200, ["<|im_end|>"])
"""

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parliabench_utils.models.packaged import current_sha256, packaged_gguf
from parliabench_utils.run.project import project_root

if TYPE_CHECKING:
    from parliabench_utils.models.loading import ModelSpec
    from parliabench_utils.models.sampling import Sampling

MISSING = "model file {file} needs llama-cpp-python: pip install llama-cpp-python (compiles for some minutes)"


def gguf_file(spec: "ModelSpec") -> Path:
    """The specification's file, the packaged one where `path` is null, with the sha256 that it declares.

    FileNotFoundError names a path that is no file; ValueError one with another hash.
    """
    if spec.path is None:
        return packaged_gguf(spec.sha256) if spec.sha256 else packaged_gguf()
    file = project_root() / spec.path
    if not file.is_file():
        raise FileNotFoundError(f"params/models/{spec.name}.yaml: path {spec.path!r} is not a GGUF file")
    if spec.sha256 and (found := current_sha256(file)) != spec.sha256:
        raise ValueError(f"params/models/{spec.name}.yaml: sha256 is {spec.sha256}, but {spec.path} has {found}")
    return file


class OwnDraw:
    """A logits processor of llama.cpp that leaves one token possible: the one that `sampling.draw` takes for this row."""

    def __init__(self, prompt: list[int], seed: int, sampling: "Sampling", stops: list[int]):
        from parliabench_utils.models.sampling import seen_tokens

        self.seed, self.sampling, self.step = seed, sampling, 0
        self.seen = seen_tokens([prompt], stops, "cpu")  # (1, K)

    def __call__(self, ids: Any, logits: Any) -> Any:
        """`logits` (V,) with all but the drawn token at minus infinity."""
        import numpy as np
        import torch

        from parliabench_utils.models.sampling import draw, penalise_seen

        row = torch.from_numpy(np.array(logits, dtype=np.float32)).unsqueeze(0)  # (1, V)
        row = penalise_seen(row, self.seen, self.sampling.repetition_penalty)
        token = int(draw(row, torch.tensor([self.seed]), self.step, self.sampling))
        self.seen = torch.cat([self.seen, torch.tensor([[token]])], dim=1)
        self.step += 1
        only = np.full_like(logits, -np.inf)
        only[token] = 0.0
        return only


@dataclass
class GgufModel:
    """One GGUF file; `llama` is loaded on first use, or given by a test."""

    file: Path
    context: int = 4096  # tokens of prompt and speech together
    llama: Any = field(default=None, repr=False)

    def loaded(self):
        """The llama.cpp model. ImportError says what to install."""
        if self.llama is None:
            if find_spec("llama_cpp") is None:
                raise ImportError(MISSING.format(file=self.file.name))
            from llama_cpp import Llama

            self.llama = Llama(str(self.file), n_ctx=self.context, verbose=False)
        return self.llama

    def complete(
        self, prompts: list[list[int]], seeds: list[int], sampling: "Sampling", max_new_tokens: int, stop: list[str]
    ) -> list[tuple[str, str]]:
        """Text and finish reason (`stop` or `length`) of each prompt, one after the other."""
        ids = [self.loaded().tokenize(text.encode(), add_bos=False, special=True) for text in stop]
        stops = [tokens[0] for tokens in ids if len(tokens) == 1]
        return [self._one(p, s, sampling, max_new_tokens, stops) for p, s in zip(prompts, seeds, strict=True)]

    def _one(self, prompt: list[int], seed: int, sampling: "Sampling", most: int, stops: list[int]) -> tuple[str, str]:
        if len(prompt) + most > self.context:
            raise ValueError(f"a prompt of {len(prompt)} tokens and {most} new ones exceed {self.context}")
        llama, answer, reason = self.loaded(), [], "length"
        drawn = OwnDraw(prompt, seed, sampling, stops)
        for token in llama.generate(prompt, temp=0.0, repeat_penalty=1.0, logits_processor=[drawn]):
            if token in stops:
                reason = "stop"
                break
            answer.append(token)
            if len(answer) == most:
                break
        return llama.detokenize(answer, special=True).decode("utf-8", "replace"), reason
