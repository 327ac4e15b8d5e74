"""Audit of what the abstract and section 6 say in words about Tables 2 and 13 (`paper.audit`)."""

import pandas as pd

from parliabench_utils.metrics.table import METRIC_BY_NAME
from parliabench_utils.results.audit_scores import differences, significant
from parliabench_utils.results.audit_tools import NOT_COMPUTABLE, Finding, agrees, rounds_to


def check_majority(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """The abstract's "majority of metrics", metric by metric."""
    rows = significant(tables)
    models = rows["model"].nunique()
    gains = rows[rows["better"]].groupby("metric").size().reindex(tables[2]["metric"].unique(), fill_value=0)
    minority = gains[gains * 2 < models]
    text = ", ".join(f"{metric} {n}" for metric, n in minority.items())
    return [
        Finding(
            "16 majority",
            "fine-tuning improves the majority of metrics",
            "abstract",
            "the majority",
            f"{int((gains * 2 > models).sum())} of {len(gains)} metrics improve in most models",
            agrees((gains * 2 > models).sum() * 2 > len(gains)),
            f"which is silent about those that improve in few of {models} models: {text}",
        ),
        *(
            Finding(
                "16 majority",
                f"{metric} improves with fine-tuning",
                "abstract, 6.1",
                "improves",
                f"in {n} of {models} models",
                "no",
            )
            for metric, n in minority.items()
        ),
    ]


def _best(table2: pd.DataFrame) -> pd.DataFrame:
    """The best row of each metric (its first when several tie)."""
    sign = table2["metric"].map(lambda name: 1 if METRIC_BY_NAME[name].higher_is_better else -1)
    ordered = table2.assign(goodness=table2["mean"] * sign)
    return ordered.loc[ordered.groupby("metric", sort=False)["goodness"].idxmax()]


def check_superior(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """Llama's "superior performance": who is best, tuned and overall."""
    tuned = tables[2][tables[2]["type"] == "fine-tuned"]
    wins = _best(tuned)["model"].value_counts()
    overall = _best(tables[2])
    untuned = overall[overall["type"] == "baseline"]
    names = ", ".join(f"{r.metric} ({r.model})" for r in untuned.itertuples())
    llama = int(wins.get("Llama 3.1 8B", 0))
    listed = ", ".join(f"{model} {n}" for model, n in sorted(wins.items(), key=lambda item: (-item[1], item[0])))
    return [
        Finding(
            "17 superior",
            "Llama achieves superior performance",
            "6.1",
            "Llama best",
            f"Llama best tuned model in {llama} of 14 metrics",
            agrees(llama == wins.max()),
            f"best tuned: {listed}",
        ),
        Finding(
            "17 untuned",
            "no untuned model is the best of all ten",
            "6.1",
            "tuned models outperform",
            f"{len(untuned)} of 14 metrics are led by an untuned model",
            agrees(untuned.empty),
            names,
        ),
    ]


def check_variance(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """ "Substantially reduced variance": how many sds fell."""
    rows = differences(tables[2])
    change = (rows["sd_f"] - rows["sd_b"]).round(6)
    fell, same, rose = int((change < 0).sum()), int((change == 0).sum()), int((change > 0).sum())
    by_model = rows.loc[change > 0, "model"].value_counts()
    return [
        Finding(
            "18 variance",
            "fine-tuned models show substantially reduced variance, across all contexts",
            "6.1",
            "reduced",
            f"of {len(rows)} sds {fell} fell, {same} are equal, {rose} rose",
            agrees(rose == 0),
            f"most rises: {by_model.index[0]} {by_model.iloc[0]}" if rose else "",
        )
    ]


def _effects(tables: dict[int, pd.DataFrame], metric: str) -> pd.DataFrame:
    rows = significant(tables)
    return rows[rows["metric"] == metric]


def check_political_effects(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """Effect sizes of PSA and Party Align in section 6.1."""
    psa, party = _effects(tables, "PSA"), _effects(tables, "Party Align")
    low, high = psa["cohens_d"].min(), psa["cohens_d"].max()
    up, down = party[party["better"]], party[~party["better"]]
    declines = ", ".join(f"{r.model} (d = {r.cohens_d:.3f})" for r in down.itertuples())
    return [
        Finding(
            "19 PSA",
            "all five models improve PSA, d = 0.141 to 1.045",
            "6.1",
            "0.141-1.045",
            f"{low:.3f}-{high:.3f}, {int(psa['better'].sum())} models",
            agrees(rounds_to(low, 0.141, 3) and rounds_to(high, 1.045, 3) and bool(psa["better"].all())),
        ),
        Finding(
            "19 PSA size",
            "the PSA effects range from small (Cohen: 0.2) to very large",
            "6.1",
            "from small",
            f"smallest d = {low:.3f}",
            agrees(low >= 0.2),
        ),
        Finding(
            "20 Party Align",
            "4 of 5 models improve Party Align, d = 0.099 to 1.221",
            "6.1",
            "4; 0.099-1.221",
            f"{len(up)}; {up['cohens_d'].min():.3f}-{up['cohens_d'].max():.3f}",
            agrees(len(up) == 4 and rounds_to(up["cohens_d"].min(), 0.099, 3) and rounds_to(up["cohens_d"].max(), 1.221, 3)),
        ),
        Finding(
            "20 Party Align declines",
            "the fifth model's change in Party Align",
            "6.1",
            "not mentioned",
            f"significant decline: {declines}" if len(down) else "none",
            agrees(down.empty),
        ),
    ]


def check_context_window(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """Section 6.5 credits long context windows (Llama's) with the improvements."""
    rows = significant(tables)
    gains = rows[rows["better"]].groupby("model").size()
    llama, others = gains["Llama 3.1 8B"], gains.drop("Llama 3.1 8B")
    return [
        Finding(
            "31 context",
            "extended context windows (Llama) enable the consistent improvements",
            "6.5",
            "Llama ahead",
            f"Llama {llama} of 14, best other {others.idxmax()} {others.max()}",
            agrees(llama > others.max()),
        )
    ]


def check_category_gains(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """Yi "the strongest improvements across all dimensions": mean direction-aware d a category."""
    rows = significant(tables)
    rows["gain"] = rows["cohens_d"].abs().where(rows["better"], -rows["cohens_d"].abs())
    rows["category"] = rows["metric"].map(lambda name: METRIC_BY_NAME[name].category)
    sums = rows.pivot_table(index="model", columns="category", values="gain", aggfunc="sum", fill_value=0.0)
    best = sums.idxmax()
    text = ", ".join(f"{category}: {model}" for category, model in best.items())
    claim = "Yi achieved the strongest improvements across all dimensions"
    note = "sum of direction-aware Cohen's d of the significant rows; Figure 3's normalisation is not published"
    return [Finding("16 Yi", claim, "6.1, Figure 3", "Yi in all three", text, agrees(bool((best == "Yi 6B").all())), note)]


def check_undefined(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """Claims that the tables cannot decide."""
    del tables
    rows = (
        (
            "6 references",
            "references are the top-5 training speeches",
            "4.1",
            "5",
            "the project page says 6: a setting, not a result",
        ),
        (
            "6 Self-BLEU groups",
            "Self-BLEU compares variants under one prompt",
            "4.1",
            "one prompt's variants",
            "the project page says all speeches of a model",
        ),
        ("33 J_PolApp", "J_PolApp judges tone", "4.1", "tone", "10.6.1 asks for the party's stance: two definitions"),
        (
            "33 GRUEN",
            "GRUEN measures linguistic quality",
            "4.1",
            "linguistic quality",
            "Tables 1 and 2 list it under semantic coherence",
        ),
        (
            "14 discrimination",
            "PSA and Party Align discriminate, both p < 0.001",
            "6.2, 6.5",
            "p < 0.001",
            "no F, df or speech-level score is published",
        ),
    )
    return [Finding(item, claim, place, stated, "", NOT_COMPUTABLE, why) for item, claim, place, stated, why in rows]


CHECKS = (
    check_majority,
    check_superior,
    check_variance,
    check_political_effects,
    check_context_window,
    check_category_gains,
    check_undefined,
)
