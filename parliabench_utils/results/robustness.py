"""Can the results be trusted? Permutation of types, one model of all speeches, who drops out, what is copied (notebook 08).

Self-BLEU: each value depends on the other speeches, so no t-test fits; the types change places instead (`self_bleu_test`). All
models at once (`mixed_models`). Whom the rule for missing values leaves out, and what that could hide (`composition`,
`worst_case`). What models repeat of their training speeches, held-out people being the yardstick (`memorisation`).

>>> found = memorised(["we shall fight on"], ["They said that we shall fight and win."])
>>> int(found["longest_run"][0]), found["longest_passage"][0]
(3, 'we shall fight')

Do the metrics agree with each other, and do scores tell human from generated speeches (`correlations`, `human_preference`;
Figures s3 and s4)?
"""

import json
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from parliabench_utils.metrics import self_bleu as bleu
from parliabench_utils.metrics.speeches import rank_correlations
from parliabench_utils.metrics.table import METRICS, Metric, is_rounding, settled
from parliabench_utils.results.scores import HUMAN, PUBLISHED, SET, cluster_t_test, estimand_weights, generated
from parliabench_utils.results.statistics import BASELINE, TUNED, cliffs_delta, compare

COLUMN = "Self-BLEU"
JOB_COLUMN = "Self-BLEU of the job"  # notebook 05's
MANY_GROUPS = 20  # 2^20 ways to change places
PERMUTATION_COLUMNS = ["model", "difference", "ci_low", "ci_high", "p", "unit", "n_prompts", "n_groups", "draws"]


def run_settings(folder: Path, sets: Iterable[tuple[str, str]]) -> tuple[str, int]:
    """(group, max_n) by which the Self-BLEU of `sets` (model, type) was taken, as its job wrote it beside the signature.

    The group is PUBLISHED where values come from elsewhere. ValueError where nothing is written, and where sets differ.
    """
    imported = folder / PUBLISHED / "settings.json"
    found: dict[tuple[str, int], str] = {}
    for model, kind in sets:
        path = imported if imported.exists() else folder / "05_text_metrics" / model / f"{kind}.signatures.json"
        used = json.loads(path.read_text(encoding="utf-8")).get("settings", {}).get(COLUMN)
        if not used:
            raise ValueError(f"{path.name} of {model} has no settings of Self-BLEU: run 05_text_metrics again")
        found.setdefault((used["group"], used["max_n"]), f"{model}/{kind}")
    if len(found) > 1:
        raise ValueError(f"05_text_metrics took Self-BLEU by different settings: {found}; run it again with one")
    return next(iter(found))


def compared_self_bleu(scores: pd.DataFrame, group: str, max_n: int = 4) -> pd.DataFrame:
    """`scores` with Self-BLEU computed again among the rows that are compared (`compared`), so that sets can be.

    A job's own value grows with the number of its valid speeches; here every set has as many, to the same prompts. NaN outside
    the pools (`metrics.self_bleu.pools`); what notebook 05 wrote stands in JOB_COLUMN.
    """
    scores = scores.assign(**{JOB_COLUMN: scores.get(JOB_COLUMN, scores[COLUMN])})
    if group == PUBLISHED:
        return scores
    return scores.assign(**{COLUMN: bleu.comparable(scores[scores["compared"]], group, max_n).reindex(scores.index)})


def compare_permuted(
    rows: pd.DataFrame, group: str, max_n: int = 4, *, draws: int = 2000, seed: int = 42, **how
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`statistics.compare` (`how` are its arguments) with Self-BLEU's p and interval from `self_bleu_test`; and that test.

    Its own interval, and its Wilcoxon p, which is left out, take the speeches for independent: with equal types such intervals
    miss 0 in a sixth of runs.
    """
    test = self_bleu_test(rows, group, max_n, draws, seed)
    by_model = test.set_index("model")
    found = compare(rows, permuted=by_model["p"], draws=draws, seed=seed, **how)
    mine = found["metric"] == COLUMN
    for column in ("ci_low", "ci_high"):
        found.loc[mine, column] = found.loc[mine, "model"].map(by_model[column])
    found.loc[mine, "wilcoxon_p"] = np.nan
    return found, test


def self_bleu_test(rows: pd.DataFrame, group: str = "model", max_n: int = 4, draws: int = 2000, seed: int = 42) -> pd.DataFrame:
    """Does tuning change Self-BLEU? PERMUTATION_COLUMNS, one row a model: difference is fine-tuned minus baseline.

    The types change places in `draws` permutations. Where there are many pools (prompts with variants, contexts) a whole pool
    does, which leaves its values as they are (unit "group"); where there are few (all speeches of a model), the two speeches of a
    prompt do, and Self-BLEU is computed again (unit "prompt"). Only speeches of `pools` count, so both types have the same prompts.
    p is two-sided; the 95 % interval reaches as far to both sides as 95 % of the permuted differences do. NaN where nothing can
    change places.
    """
    published = group == PUBLISHED
    both = rows["type"].isin([BASELINE, TUNED])
    pool = rows["prompt_id"] if published else bleu.pools(rows, group)
    values = rows[COLUMN] if published else bleu.comparable(rows, group, max_n)
    pooled = rows.assign(_pool=pool, **{COLUMN: values})[both & pool.notna() & rows["generated_speech"].notna()]
    found = []
    for model in dict.fromkeys(rows.loc[both, "model"]):
        speeches, rng = pooled[pooled["model"] == model].reset_index(drop=True), np.random.default_rng(seed)
        n_groups, n_prompts = (int((speeches.groupby(key)["type"].nunique() == 2).sum()) for key in ("_pool", "prompt_id"))
        unit = "group" if published or n_groups >= MANY_GROUPS else "prompt"
        difference, null = _swap_groups(speeches, draws, rng) if unit == "group" else _swap_prompts(speeches, max_n, draws, rng)
        undefined = np.isnan(difference) or is_rounding(np.ptp(null), 1.0)
        p = np.nan if undefined else (1 + (np.abs(null) >= abs(difference) - 1e-12).sum()) / (1 + draws)
        reach = np.percentile(np.abs(null), 95)
        row = {"model": model, "difference": difference, "ci_low": difference - reach, "ci_high": difference + reach, "p": p}
        found.append(row | {"unit": unit, "n_prompts": n_prompts, "n_groups": n_groups, "draws": draws})
    return pd.DataFrame(found, columns=PERMUTATION_COLUMNS)


def _swap_groups(speeches: pd.DataFrame, draws: int, rng: np.random.Generator) -> tuple[float, np.ndarray]:
    """The difference and its permutations: each pool's two types change places, with their values, with probability 1/2."""
    stats = speeches.groupby(["_pool", "type"])[COLUMN].agg(["sum", "count"]).unstack("type", fill_value=0)
    sums, counts = (stats[name].reindex(columns=[BASELINE, TUNED], fill_value=0).to_numpy(float) for name in ("sum", "count"))
    swap = np.vstack([np.zeros(len(stats), dtype=bool), rng.random((draws, len(stats))) < 0.5])  # the first is as things are
    swap[:, (counts == 0).any(axis=1)] = False
    moved_sums, moved_counts = (swap @ (table[:, 0] - table[:, 1]) for table in (sums, counts))
    if not counts.sum(axis=0).all():
        return float("nan"), np.full(draws, np.nan)
    tuned = (sums[:, 1].sum() + moved_sums) / (counts[:, 1].sum() + moved_counts)
    differences = tuned - (sums[:, 0].sum() - moved_sums) / (counts[:, 0].sum() - moved_counts)
    return float(differences[0]), differences[1:]


def _swap_prompts(speeches: pd.DataFrame, max_n: int, draws: int, rng: np.random.Generator) -> tuple[float, np.ndarray]:
    """The same, the two types of a prompt changing places; values are computed anew among the speeches at hand."""
    found = bleu.shared_ngrams(speeches["generated_speech"].tolist(), pd.factorize(speeches["_pool"])[0], max_n)
    tuned = (speeches["type"] == TUNED).to_numpy()
    prompt = pd.factorize(speeches["prompt_id"])[0]
    shared = (speeches.groupby(prompt)["type"].nunique() == 2).to_numpy()

    def difference(side: np.ndarray) -> float:
        values = bleu.leave_one_out(found, side)
        sides = [values[~np.isnan(values) & mask] for mask in (side, ~side)]
        return float(sides[0].mean() - sides[1].mean()) if all(s.size for s in sides) else float("nan")

    swaps = ((rng.random(shared.size) < 0.5) & shared for _ in range(draws))
    return difference(tuned), np.array([difference(tuned ^ swap[prompt]) for swap in swaps])


MIXED_COLUMNS = ["metric", "term", "estimate", "se", "statistic", "df", "df_error", "p", "ci_low", "ci_high"]
MIXED_COLUMNS += ["n", "n_prompts", "n_effective", "sd_prompt", "sd_residual", "estimand", "converged", "note"]


def mixed_models(scores: pd.DataFrame, metrics: Sequence[Metric] = METRICS, estimand: str = "prompts") -> pd.DataFrame:
    """score ~ type * model with what speeches to one prompt share, MIXED_COLUMNS for each metric: the effect of fine-tuning over
    all models (their plain mean), that of each model, and whether the effects differ between models (`type x model`, no estimate).

    Generalised estimating equations (Liang and Zeger 1986): speeches to a prompt are exchangeable, errors robust to unequal variances
    and any dependence within a prompt, corrected for few prompts (Mancl and DeRouen 2001); a random intercept with one residual
    variance has false positives to .20 where models differ in spread. `statistic` is t with `df_error` degrees of freedom, or F with
    `df` and `df_error`; prompts weigh by the `estimand`. One row of NaN and a note where there is no spread, or a cell has no value.
    """
    rows = scores[scores["type"].isin([BASELINE, TUNED])]
    found = [row for metric in metrics for row in _one_metric(rows, metric, estimand)]
    return pd.DataFrame(found, columns=MIXED_COLUMNS).assign(estimand=estimand)


def _one_metric(rows: pd.DataFrame, metric: Metric, estimand: str) -> list[dict]:
    known = rows[rows[metric.column].notna()]
    models, y = list(dict.fromkeys(rows["model"])), known[metric.column].to_numpy(float)
    cells = [known["model"].eq(model) & known["type"].eq(kind) for model in models for kind in (BASELINE, TUNED)]
    prompts = known.drop_duplicates("prompt_id").set_index("prompt_id", drop=False)
    common = {"metric": metric.name, "n": y.size, "n_prompts": len(prompts)}
    if len(prompts) < 3 or not all(cell.any() for cell in cells) or is_rounding(np.ptp(y), np.abs(y).max()):
        return [common | {"term": "fine-tuned", "converged": False, "note": "too few values, or no spread"}]
    shifts = np.array([_constant_shift(known[known["model"] == m], metric.column, np.abs(y).max()) for m in models])
    effects = np.kron(np.eye(len(models)), [-1.0, 1.0])  # (models, cells): fine-tuned minus baseline of each model
    terms = {"fine-tuned": effects.mean(axis=0)}
    terms |= {f"fine-tuned: {m}": effect for m, effect in zip(models, effects, strict=True) if len(models) > 1}
    if not np.isnan(shifts).any():
        common |= {"converged": False, "note": "the same difference in every prompt: nothing to test"}
        return [common | {"term": term, "estimate": effect[1::2] @ shifts} for term, effect in terms.items()]
    weights = known["prompt_id"].map(pd.Series(estimand_weights(prompts, estimand, rows), index=prompts.index)).to_numpy()
    found = _fit_cells(y, np.column_stack(cells).astype(float), known["prompt_id"].to_numpy(), weights, terms, np.isnan(shifts))
    return [common | row for row in found]


def _constant_shift(rows: pd.DataFrame, column: str, size: float) -> float:
    """The one difference, fine-tuned minus baseline, of all prompts that have both (numbers of that size); NaN if they differ."""
    wide = rows.pivot_table(index="prompt_id", columns="type", values=column)
    gaps = (wide[TUNED] - wide[BASELINE]).dropna().to_numpy(float)
    return float(gaps.mean()) if gaps.size > 1 and is_rounding(np.ptp(gaps), size) else np.nan


def _fit_cells(
    y: np.ndarray, x: np.ndarray, prompts: np.ndarray, weights: np.ndarray, terms: dict[str, np.ndarray], varies: np.ndarray
) -> list[dict]:
    """A row a contrast of `terms` (all models, then each) and one of them all, from y (n,), x (n, n_cells) of full rank, labels and
    weights of prompts (n,), which are the units; a model that does not vary (n_models,) has an estimate and no test."""
    import statsmodels.api as sm
    from scipy import stats

    scale, root = y.std(), np.sqrt(weights)  # statsmodels' own weights do not reach its correction for few prompts
    sharing = sm.cov_struct.Exchangeable()
    fit = sm.GEE((y - y.mean()) / scale * root, x * root[:, None], prompts, cov_struct=sharing).fit(cov_type="bias_reduced")
    rho, each = max(float(sharing.dep_params), 0.0), weights[np.unique(prompts, return_index=True)[1]]
    n = float(each.sum() ** 2 / (each**2).sum())
    note = "" if rho > 0 else "prompts share nothing: their variance is 0"
    common = {"n_effective": n, "converged": bool(fit.converged), "note": note}
    common |= {"sd_prompt": scale * np.sqrt(fit.scale * rho), "sd_residual": scale * np.sqrt(fit.scale * (1 - rho))}
    contrasts, tested = np.stack(list(terms.values())), np.append(True, varies)[: len(terms)]
    se = scale * np.sqrt(np.diag(contrasts @ fit.cov_params() @ contrasts.T).clip(0))
    se = np.where(tested & (se > 0), se, np.nan)
    table = pd.DataFrame({"term": list(terms), "estimate": scale * contrasts @ fit.params, "se": se, "df": 1})
    table["statistic"], reach = table["estimate"] / se, stats.t.ppf(0.975, n - 1) * se
    table["df_error"] = np.where(tested, n - 1, np.nan)
    table["p"] = 2 * stats.t.sf(table["statistic"].abs(), n - 1)
    table["ci_low"], table["ci_high"] = table["estimate"] - reach, table["estimate"] + reach
    rows, q = table.to_dict("records"), len(varies) - 1
    if q:
        rows.append({"term": "type x model"} | ({"df": q} if (~varies).sum() < 2 else {}))
    if q and (~varies).sum() < 2 and n > q:  # Hotelling's T squared as F
        f = float(fit.f_test(contrasts[2:] - contrasts[1]).fvalue) * (n - q) / (n - 1)
        rows[-1] |= {"statistic": f, "df_error": n - q, "p": float(stats.f.sf(f, q, n - q))}
    return [common | row for row in rows]


CROSSED = "Party x House x Topic"
ALL = "all"  # every generated set keeps the same prompts
SELECTION_COLUMNS = ["model", "type", "by", "group", "prompts", "kept", "share_before", "share_after", "change", "chi2", "df", "p"]


def composition(scores: pd.DataFrame, draws: int = 2000, seed: int = 42) -> pd.DataFrame:
    """Prompts and kept prompts (`scores["compared"]`, section 5.3) by party, house, topic and all three crossed.

    A prompt is kept by a generated set (model, type) that has a compared speech to it; members, who always spoke, do not decide.
    Where all sets keep the same prompts there is one block of rows, `model` ALL, else one a set.

    SELECTION_COLUMNS; the same in all rows of a block and `by`: chi2 of kept against group ("every prompt is as likely to stay"),
    df, and p from `draws` permutations of which prompts stay (groups are too small for the table's chi-square).
    """
    contexts = ["Party", "House", "Topic"]
    prompts = scores.groupby("prompt_id")[contexts].first()
    prompts[CROSSED] = prompts[contexts].astype(str).agg(" / ".join, axis=1)
    answered = generated(scores).groupby(["prompt_id", *SET], sort=False)["compared"].any().unstack(SET)
    kept = answered.reindex(prompts.index).eq(True)
    if kept.eq(kept.iloc[:, 0], axis=0).all(axis=None):
        kept = kept.iloc[:, :1].set_axis(pd.MultiIndex.from_tuples([(ALL, "generated")]), axis=1)
    parts = []
    for ((model, kind), stays), by in product(kept.items(), prompts):
        groups = prompts[by].astype(str)
        part = stays.groupby(groups).agg(prompts="size", kept="sum").rename_axis("group").reset_index()
        chi2, p = _chi2_test(pd.factorize(groups)[0], stays.to_numpy(bool), draws, seed)
        part = part.assign(model=model, type=kind, by=by, chi2=chi2, df=len(part) - 1, p=p)
        part["share_before"] = part["prompts"] / len(groups)
        part["share_after"] = part["kept"] / stays.sum() if stays.any() else np.nan
        parts.append(part.assign(change=part["share_after"] - part["share_before"]))
    return pd.concat(parts, ignore_index=True)[SELECTION_COLUMNS]


def _chi2_test(groups: np.ndarray, kept: np.ndarray, draws: int, seed: int) -> tuple[float, float]:
    """Chi-square of a groups x (kept, dropped) table and its permutation p; NaN where all stay, none stays or one group is."""
    sizes, share = np.bincount(groups), kept.mean()
    if share in (0.0, 1.0) or sizes.size < 2:
        return float("nan"), float("nan")
    expected = sizes * share

    def chi2(stay: np.ndarray) -> np.ndarray:  # kept prompts by group (..., n_groups)
        off = stay - expected
        return (off**2 / expected + off**2 / (sizes - expected)).sum(axis=-1)

    observed = float(chi2(np.bincount(groups[kept], minlength=sizes.size)))
    rng = np.random.default_rng(seed)  # counts of a random choice of so many prompts, without naming them
    null = chi2(rng.multivariate_hypergeometric(sizes, int(kept.sum()), size=draws, method="marginals"))
    return observed, float((1 + (null >= observed - 1e-9).sum()) / (1 + draws))


def worst_case(scores: pd.DataFrame, metrics: Sequence[Metric] = METRICS) -> pd.DataFrame:
    """Bounds of fine-tuned minus baseline over *all* prompts, for each model and metric, whatever the missing speeches were like.

    A missing value may be anything between the metric's ends (PPL: the run's smallest and largest). Self-BLEU's values are those
    among the compared speeches; more speeches would raise them. Columns: model, metric, n_prompts (those for which the metric is
    defined for anybody), n_pairs, difference (of the pairs), lowest, highest, sign_certain.
    """
    means = scores.groupby([*SET, "prompt_id"])[[metric.column for metric in metrics]].mean().astype(float)
    rows = []
    for model, metric in product(dict.fromkeys(generated(scores)["model"]), metrics):
        wide = means[metric.column].unstack(SET).dropna(how="all")
        base, tuned = (wide.get((model, kind), pd.Series(np.nan, wide.index)).to_numpy(float) for kind in (BASELINE, TUNED))
        low, high = metric.range
        if high is None:
            low, high = np.nanmin(wide.to_numpy(), initial=np.inf), np.nanmax(wide.to_numpy(), initial=-np.inf)
        pairs = tuned - base
        smallest = np.where(np.isnan(tuned), low, tuned) - np.where(np.isnan(base), high, base)
        largest = np.where(np.isnan(tuned), high, tuned) - np.where(np.isnan(base), low, base)
        size = np.nanmax(np.abs([tuned, base]), initial=0.0)
        settle = (settled(side, size) for side in (pairs[~np.isnan(pairs)], smallest, largest))
        difference, lowest, highest = (float(side.mean()) if side.size else float("nan") for side in settle)
        row = {"model": model, "metric": metric.name, "n_prompts": base.size, "n_pairs": int((~np.isnan(pairs)).sum())}
        row |= {"difference": difference, "lowest": lowest, "highest": highest}
        rows.append(row | {"sign_certain": bool(lowest > 0 or highest < 0)})
    return pd.DataFrame(rows)


def correlations(scores: pd.DataFrame, metrics: Sequence[Metric] = METRICS) -> pd.DataFrame:
    """Spearman's rho between all metrics within each generated set, its plain mean over sets: first, second, rho, n, sets.

    rho in [-1, 1], n speeches in all, of so many `sets` (`metrics.speeches.rank_correlations`).
    """
    tables = rank_correlations(generated(scores), [metric.column for metric in metrics])
    return pd.DataFrame(
        [
            {"first": a.name, "second": b.name}
            | dict(zip(("rho", "n", "sets"), (t.loc[a.column, b.column] for t in tables), strict=True))
            for a in metrics
            for b in metrics
        ]
    )


def human_preference(scores: pd.DataFrame, metrics: Sequence[Metric] = METRICS, estimand: str = "prompts") -> pd.DataFrame:
    """P(a human speech scores better than a generated one to the same prompt), ties half.

    0.5 means that the metric cannot tell them apart. Columns: metric, preference, low and high (95 %, pairs of a prompt may depend
    on one another; NaN where all pairs say the same), n, n_effective. Pairs weigh by the `estimand`.
    """
    human = scores[scores["type"] == HUMAN].drop_duplicates("prompt_id").set_index("prompt_id")
    rows = generated(scores)
    rows = rows[rows["prompt_id"].isin(human.index)]
    wins = np.column_stack([_wins(human, rows, metric) for metric in metrics])  # (pairs, metrics)
    found = []
    for metric, won in zip(metrics, wins.T, strict=True):
        known = rows[~np.isnan(won)]
        weights = estimand_weights(known, estimand, scores)
        test = cluster_t_test(won[~np.isnan(won)], known["prompt_id"].to_numpy(), weights)
        ends = np.clip([test.low, test.high], 0, 1)
        effective = weights.sum() ** 2 / (weights**2).sum() if len(known) else 0.0
        found.append([metric.name, test.mean, *ends, len(known), effective])
    return pd.DataFrame(found, columns=["metric", "preference", "low", "high", "n", "n_effective"])


def _wins(human: pd.DataFrame, rows: pd.DataFrame, metric: Metric) -> np.ndarray:
    """1 where the human speech is better, 0.5 for a tie, 0 where it is worse, NaN where a score is missing."""
    sides = np.stack([human[metric.column].reindex(rows["prompt_id"]).to_numpy(float), rows[metric.column].to_numpy(float)])
    gap = -np.diff(settled(sides), axis=0)[0]
    return (np.sign(gap if metric.higher_is_better else -gap) + 1) / 2


ORDERS = (5, 8, 13)  # words; 13 is a usual mark of contamination, 5 still meets set phrases
CHUNK = 20_000  # training speeches held at a time
MEMORISATION_COLUMNS = ["n_words", "longest_run", *(f"overlap_{n}" for n in ORDERS), "longest_passage"]


def memorised(texts: Sequence[str | None], training: Sequence[str]) -> pd.DataFrame:
    """MEMORISATION_COLUMNS for each text: words; words of the longest run that a training speech has word for word, and that run;
    share of the text's n-grams that a training speech has, in [0, 1], NaN for a text shorter than n.

    Case is folded, marks count as words.
    """
    corpus = bleu.encode(texts)
    runs = np.zeros(corpus.codes.size, dtype=np.int64)  # longest match that starts at each word
    for first in range(0, len(training), CHUNK):
        runs = np.maximum(runs, _runs(corpus, bleu.encode(training[first : first + CHUNK])))
    rows = []
    for words, run in zip(corpus.words, np.split(runs, np.cumsum(corpus.lengths)[:-1]), strict=True):
        size, longest = len(words), int(run.max(initial=0))
        at = int(run.argmax()) if size else 0
        shares = [float((run[: size - n + 1] >= n).mean()) if size >= n else np.nan for n in ORDERS]
        rows.append([size, longest, *shares, " ".join(words[at : at + longest])])
    return pd.DataFrame(rows, columns=MEMORISATION_COLUMNS)


def _runs(texts: bleu.Encoded, training: bleu.Encoded) -> np.ndarray:
    """Words of the longest run from each position of `texts` that occurs in `training`, shape (n_words,)."""
    found = np.zeros(texts.codes.size, dtype=np.int64)
    here, there = np.arange(texts.codes.size), np.arange(training.codes.size)
    mine, theirs, n = texts.codes, training.codes, 1
    while here.size and there.size:
        shared = _among(mine, theirs)
        found[here[shared]] = n
        both = _among(theirs, mine[shared])
        mine, here = bleu.longer(mine[shared], here[shared], n, texts)
        theirs, there = bleu.longer(theirs[both], there[both], n, training)
        n += 1
    return found


def _among(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which of `values` are among `others`; for millions of numbers faster than `np.isin`."""
    known = np.sort(others)
    if not known.size:
        return np.zeros(values.size, dtype=bool)
    return known[np.minimum(np.searchsorted(known, values), known.size - 1)] == values


def memorisation(scores: pd.DataFrame, training: Sequence[str]) -> pd.DataFrame:
    """`memorised` for every row of a score frame that has a speech, with its prompt_id, variant, model and type."""
    rows = scores[scores["generated_speech"].notna()].reset_index(drop=True)
    found = memorised(rows["generated_speech"].tolist(), training)
    return pd.concat([rows[["prompt_id", "variant", *SET]], found], axis=1)


def memorisation_summary(found: pd.DataFrame) -> pd.DataFrame:
    """One row a model and type, people too: n, median and longest run, mean overlaps, and against people, who share set phrases
    with the training speeches too: the share of speeches above their 95th percentile (0.05 or less is no more than they do),
    Cliff's delta and Mann-Whitney p.
    """
    from scipy import stats

    human = found.loc[found["type"] == HUMAN, "longest_run"].to_numpy(float)
    rows = []
    for (model, kind), part in found.groupby(SET, sort=False):
        runs = part["longest_run"].to_numpy(float)
        row = {"model": model, "type": kind, "n": len(part), "median_longest": np.median(runs), "max_longest": int(runs.max())}
        row |= {f"mean_overlap_{n}": part[f"overlap_{n}"].mean() for n in ORDERS}
        row |= {"above_human_95": np.nan, "cliffs_delta": np.nan, "p": np.nan}
        if human.size:
            row["above_human_95"] = float((runs > np.percentile(human, 95)).mean())
        if human.size and kind != HUMAN:
            row |= {"cliffs_delta": cliffs_delta(human, runs), "p": float(stats.mannwhitneyu(runs, human).pvalue)}
        rows.append(row)
    return pd.DataFrame(rows)
