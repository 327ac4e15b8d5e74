"""A mixed model of each metric, score ~ type * model + (1 | prompt), by restricted maximum likelihood (notebook 08).

The random intercept says what all speeches to one prompt share, so all models are compared in one analysis. With one random
intercept the likelihood needs only sums by prompt and has one free number, the ratio of the two variances: statsmodels'
`MixedLM` gives the same estimates (a test holds the two together) and takes minutes where this takes milliseconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from parliabench_utils.metrics.table import METRICS, Metric
from parliabench_utils.results.compare import BASELINE, TUNED

LOG_RATIO = (
    -12.0,
    10.0,
)  # natural logarithms of the prompts' variance over the residual one between which it is sought
COLUMNS = ["metric", "term", "estimate", "se", "statistic", "df", "p", "ci_low", "ci_high", "n", "n_prompts"]
COLUMNS += ["sd_prompt", "sd_residual", "converged", "note"]


@dataclass(frozen=True)
class Fit:
    """Coefficients, their covariance, and the standard deviations between prompts and within one."""

    beta: np.ndarray
    covariance: np.ndarray
    sd_group: float
    sd_residual: float
    converged: bool
    note: str


def fit_random_intercept(y: np.ndarray, x: np.ndarray, groups: np.ndarray) -> Fit:
    """REML fit of y = x beta + intercept of the group + rest: y (n,), x (n, p) of full rank with n > p, groups (n,) labels."""
    from scipy.optimize import minimize_scalar

    sums = _Sums(y, x, groups)
    best = minimize_scalar(lambda log: sums.criterion(np.exp(log)), bounds=LOG_RATIO, method="bounded")
    ratio, note = float(np.exp(best.x)), ""
    if sums.criterion(0.0) <= best.fun:
        ratio, note = 0.0, "prompts share nothing: variance between them 0, at the edge"
    elif best.x > LOG_RATIO[1] - 0.1:
        note = "nothing varies within a prompt: variance ratio at the edge"
    beta, information, variance = sums.solve(ratio)
    covariance = variance * np.linalg.inv(information)
    return Fit(beta, covariance, float(np.sqrt(ratio * variance)), float(np.sqrt(variance)), bool(best.success), note)


class _Sums:
    """What the restricted likelihood needs of the data: cross products over all rows and sums by group."""

    def __init__(self, y: np.ndarray, x: np.ndarray, groups: np.ndarray):
        codes = np.unique(groups, return_inverse=True)[1]
        self.size = np.bincount(codes).astype(float)
        self.y = np.bincount(codes, y)
        self.x = np.column_stack([np.bincount(codes, column) for column in x.T])
        self.xx, self.xy, self.yy, self.free = x.T @ x, x.T @ y, y @ y, y.size - x.shape[1]

    def solve(self, ratio: float) -> tuple[np.ndarray, np.ndarray, float]:
        """beta, x' V^-1 x and the residual variance for a ratio of variances (V of the residual scale)."""
        weight = ratio / (1 + ratio * self.size)
        xx = self.xx - (self.x.T * weight) @ self.x
        xy = self.xy - self.x.T @ (weight * self.y)
        beta = np.linalg.solve(xx, xy)
        return beta, xx, float((self.yy - weight @ self.y**2 - xy @ beta) / self.free)

    def criterion(self, ratio: float) -> float:
        """Minus twice the restricted log-likelihood, up to a constant."""
        _, xx, variance = self.solve(ratio)
        spread = np.log(max(variance, 1e-300)) * self.free
        return float(spread + np.log1p(ratio * self.size).sum() + np.linalg.slogdet(xx)[1])


def mixed_models(scores: pd.DataFrame, metrics: Sequence[Metric] = METRICS) -> pd.DataFrame:
    """COLUMNS for each metric: the effect of fine-tuning over all models (their plain mean), that of each model, and whether the
    effects differ between models (`type x model`: chi-square, no estimate). `statistic` is z where df is 1.

    A metric without spread, or without values in a cell of type and model, has one row of NaN and a note.
    """
    rows = scores[scores["type"].isin([BASELINE, TUNED])]
    return pd.DataFrame([row for metric in metrics for row in _one_metric(rows, metric)], columns=COLUMNS)


def _one_metric(rows: pd.DataFrame, metric: Metric) -> list[dict]:
    known = rows[rows[metric.column].notna()]
    models = list(dict.fromkeys(rows["model"]))
    y = known[metric.column].to_numpy(float)
    cells = [known["model"].eq(m) & known["type"].eq(t) for m in models for t in (BASELINE, TUNED)]
    common = {"metric": metric.name, "n": y.size, "n_prompts": known["prompt_id"].nunique()}
    if y.size <= len(cells) or not all(cell.any() for cell in cells) or np.ptp(y) == 0:
        return [common | {"term": "fine-tuned", "converged": False, "note": "too few values, or no spread"}]
    x = np.column_stack(cells).astype(float)
    scale = y.std()
    fit = fit_random_intercept((y - y.mean()) / scale, x, known["prompt_id"].to_numpy())
    common |= {"sd_prompt": scale * fit.sd_group, "sd_residual": scale * fit.sd_residual}
    common |= {"converged": fit.converged, "note": fit.note}
    effects = np.kron(np.eye(len(models)), [-1.0, 1.0])  # (models, cells): fine-tuned minus baseline of each model
    terms = {"fine-tuned": effects.mean(axis=0)} | {f"fine-tuned: {m}": e for m, e in zip(models, effects, strict=True)}
    if len(models) == 1:
        return [common | {"term": "fine-tuned"} | _wald(effects[0], fit, scale)]
    found = [common | {"term": term} | _wald(contrast, fit, scale) for term, contrast in terms.items()]
    return [*found, common | {"term": "type x model"} | _joint(effects[1:] - effects[0], fit)]


def _wald(contrast: np.ndarray, fit: Fit, scale: float) -> dict[str, float]:
    from scipy import stats

    estimate, se = scale * contrast @ fit.beta, scale * np.sqrt(contrast @ fit.covariance @ contrast)
    z = estimate / se
    interval = {"ci_low": estimate - 1.96 * se, "ci_high": estimate + 1.96 * se}
    return {"estimate": estimate, "se": se, "statistic": z, "df": 1, "p": float(2 * stats.norm.sf(abs(z)))} | interval


def _joint(contrasts: np.ndarray, fit: Fit) -> dict[str, float]:
    from scipy import stats

    apart = contrasts @ fit.beta
    chi2 = float(apart @ np.linalg.solve(contrasts @ fit.covariance @ contrasts.T, apart))
    return {"statistic": chi2, "df": len(contrasts), "p": float(stats.chi2.sf(chi2, len(contrasts)))}
