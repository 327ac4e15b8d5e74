"""All models in one analysis of each metric, score ~ type * model, with what speeches to one prompt share (notebook 08).

A random intercept by prompt with one residual variance finds effects that are not there where models differ in spread (false
positives to .20). So the same model is fitted by generalised estimating equations (Liang and Zeger 1986): speeches to a
prompt are exchangeable, as with a random intercept, and standard errors are robust to unequal variances and any dependence
within a prompt, corrected for few prompts (Mancl and DeRouen 2001). statsmodels fits it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from parliabench_utils.metrics.table import METRICS, Metric, is_rounding
from parliabench_utils.results.cells import estimand_weights
from parliabench_utils.results.compare import BASELINE, TUNED

COLUMNS = ["metric", "term", "estimate", "se", "statistic", "df", "df_error", "p", "ci_low", "ci_high"]
COLUMNS += ["n", "n_prompts", "n_effective", "sd_prompt", "sd_residual", "estimand", "converged", "note"]


@dataclass(frozen=True)
class Fit:
    """Means of the cells, their robust covariance, sds between prompts and within one (pooled), effective number of prompts."""

    beta: np.ndarray
    covariance: np.ndarray
    sd_prompt: float
    sd_residual: float
    n_effective: float
    converged: bool
    note: str


def fit_cells(y: np.ndarray, x: np.ndarray, prompts: np.ndarray, weights: np.ndarray) -> Fit:
    """y (n,), x (n, n_cells) of full rank, labels and weights of the prompts (n,); weights are the same within a prompt."""
    import statsmodels.api as sm

    root = np.sqrt(weights)  # statsmodels' own weights do not reach its correction for few prompts
    sharing = sm.cov_struct.Exchangeable()
    fit = sm.GEE(y * root, x * root[:, None], prompts, cov_struct=sharing).fit(cov_type="bias_reduced")
    rho, each = float(sharing.dep_params), weights[np.unique(prompts, return_index=True)[1]]
    note = "" if rho > 0 else "prompts share nothing: their variance is 0"
    sds = np.sqrt(fit.scale * np.array([max(rho, 0.0), 1.0 - max(rho, 0.0)]))
    effective = float(each.sum() ** 2 / (each**2).sum())
    return Fit(
        np.asarray(fit.params), np.asarray(fit.cov_params()), *map(float, sds), effective, bool(fit.converged), note
    )


def mixed_models(scores: pd.DataFrame, metrics: Sequence[Metric] = METRICS, estimand: str = "prompts") -> pd.DataFrame:
    """COLUMNS for each metric: the effect of fine-tuning over all models (their plain mean), that of each model, and whether the
    effects differ between models (`type x model`, no estimate).

    `statistic` is t with `df_error` degrees of freedom, for `type x model` F with `df` and `df_error`; prompts weigh by the
    `estimand`. A metric without spread, or without values in a cell of type and model, has one row of NaN and a note.
    """
    rows = scores[scores["type"].isin([BASELINE, TUNED])]
    found = [row for metric in metrics for row in _one_metric(rows, metric, estimand)]
    return pd.DataFrame(found, columns=COLUMNS).assign(estimand=estimand)


def _one_metric(rows: pd.DataFrame, metric: Metric, estimand: str) -> list[dict]:
    known = rows[rows[metric.column].notna()]
    models = list(dict.fromkeys(rows["model"]))
    y = known[metric.column].to_numpy(float)
    cells = [known["model"].eq(m) & known["type"].eq(t) for m in models for t in (BASELINE, TUNED)]
    prompts = known.drop_duplicates("prompt_id").set_index("prompt_id", drop=False)
    common = {"metric": metric.name, "n": y.size, "n_prompts": len(prompts)}
    if len(prompts) < 3 or not all(cell.any() for cell in cells) or is_rounding(np.ptp(y), np.abs(y).max()):
        return [common | {"term": "fine-tuned", "converged": False, "note": "too few values, or no spread"}]
    shifts = np.array([_constant_shift(known[known["model"] == m], metric.column, np.abs(y).max()) for m in models])
    effects = np.kron(np.eye(len(models)), [-1.0, 1.0])  # (models, cells): fine-tuned minus baseline of each model
    terms = {"fine-tuned": effects.mean(axis=0)} | {f"fine-tuned: {m}": e for m, e in zip(models, effects, strict=True)}
    terms = {"fine-tuned": effects[0]} if len(models) == 1 else terms
    if not np.isnan(shifts).any():
        common |= {"converged": False, "note": "the same difference in every prompt: nothing to test"}
        return [common | {"term": term, "estimate": effect[1::2] @ shifts} for term, effect in terms.items()]
    x = np.column_stack(cells).astype(float)
    weights = pd.Series(estimand_weights(prompts, estimand, rows), index=prompts.index)
    scale = y.std()
    fit = fit_cells(
        (y - y.mean()) / scale, x, known["prompt_id"].to_numpy(), known["prompt_id"].map(weights).to_numpy()
    )
    common |= {"sd_prompt": scale * fit.sd_prompt, "sd_residual": scale * fit.sd_residual}
    common |= {"n_effective": fit.n_effective, "converged": fit.converged, "note": fit.note}
    tested = [common | {"term": term} | _effect(contrast, fit, scale) for term, contrast in terms.items()]
    for row, shift in zip(tested[1:], shifts, strict=False):
        if not np.isnan(shift):
            row |= dict.fromkeys(("se", "statistic", "df_error", "p", "ci_low", "ci_high"), np.nan)
    if len(models) == 1:
        return tested
    joint = {} if np.sum(~np.isnan(shifts)) > 1 else _joint(effects[1:] - effects[0], fit)
    return [*tested, common | {"term": "type x model"} | joint]


def _constant_shift(rows: pd.DataFrame, column: str, size: float) -> float:
    """The one difference, fine-tuned minus baseline, of all prompts that have both (numbers of that size); NaN if they differ."""
    wide = rows.pivot_table(index="prompt_id", columns="type", values=column)
    gaps = (wide[TUNED] - wide[BASELINE]).dropna().to_numpy(float)
    return float(gaps.mean()) if gaps.size > 1 and is_rounding(np.ptp(gaps), size) else np.nan


def _effect(contrast: np.ndarray, fit: Fit, scale: float) -> dict[str, float]:
    from scipy import stats

    estimate, se = scale * contrast @ fit.beta, scale * np.sqrt(max(contrast @ fit.covariance @ contrast, 0.0))
    found = {"estimate": estimate, "se": se, "df": 1, "df_error": fit.n_effective - 1}
    if not se > 0:
        return found
    reach, t = stats.t.ppf(0.975, fit.n_effective - 1) * se, estimate / se
    p = float(2 * stats.t.sf(abs(t), fit.n_effective - 1))
    return found | {"statistic": t, "p": p, "ci_low": estimate - reach, "ci_high": estimate + reach}


def _joint(contrasts: np.ndarray, fit: Fit) -> dict[str, float]:
    """Hotelling's T squared as F, prompts being the units."""
    from scipy import stats

    apart, n, q = contrasts @ fit.beta, fit.n_effective, len(contrasts)
    if n <= q:
        return {"df": q}
    t2 = float(apart @ np.linalg.solve(contrasts @ fit.covariance @ contrasts.T, apart))
    f = t2 * (n - q) / ((n - 1) * q)
    return {"statistic": f, "df": q, "df_error": n - q, "p": float(stats.f.sf(f, q, n - q))}
