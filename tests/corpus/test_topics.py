"""Topics: EuroVoc's levels, Table 4's mapping, and the three classifiers behind one call."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pandas as pd
import pytest

from parliabench_utils.corpus import topics
from parliabench_utils.corpus.people import ORIENTATION_SCALE
from parliabench_utils.corpus.topics import (
    DOMAIN_CODES,
    KEVLAR_TOKEN,
    EmbeddingTopics,
    KevlarTopics,
    concepts,
    domain_descriptions,
    domains_of,
    microthesauri,
    topic_classifier,
)

TRAINS = "Trains should run on time."


class WordEncoder:
    """Counts of hashed words as unit rows: texts that share words are near; NaN for an empty text."""

    signature = "words"

    def encode(self, texts):
        from sklearn.feature_extraction.text import HashingVectorizer

        rows = HashingVectorizer(n_features=4096, alternate_sign=False, stop_words="english").transform(texts).toarray()
        return np.where([[bool(text)] for text in texts], rows, np.nan)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PARLIABENCH_CACHE", str(tmp_path / "cache"))


# --- the tables -------------------------------------------------------------------------------------------------------
def test_table_4_and_the_scale():
    mapped = [domain for domain in topics.CAP_TO_EUROVOC.values() if domain]
    assert len(topics.CAP_TO_EUROVOC) == 23 and len(mapped) == 13 and set(mapped) < set(topics.EUROVOC_DOMAINS)
    assert len(topics.EUROVOC_DOMAINS) == 21 and len(topics.UNREACHABLE) == 8
    assert {"European Union", "Finance", "Geography", "Science"} < set(topics.UNREACHABLE)
    assert list(ORIENTATION_SCALE.values()) == list(range(-6, 7)) and ORIENTATION_SCALE["Centre"] == 0


def test_names_are_the_papers():
    from parliabench_utils.results.paper import published

    assert set(published(11)["topic"]) == set(topics.EUROVOC_DOMAINS) == set(domain_descriptions())
    table = published(4).set_index("cap_category")["eurovoc_domain"]
    renamed = {"Economy": "Economics", "Agriculture, Forestry, Fisheries": "Agriculture, Forestry and Fisheries"}
    for name, domain in topics.CAP_TO_EUROVOC.items():
        published_domain = table["Mix/Other" if name in ("Mix", "Other") else name]
        assert domain == {"—": None}.get(published_domain, renamed.get(published_domain, published_domain))


def test_eurovoc_is_whole():
    assert len(microthesauri()) == 127 and {code[:2] for code in microthesauri()} == set(DOMAIN_CODES)
    assert set(concepts().values()) == set(microthesauri())


@pytest.mark.parametrize(
    ("labels", "domains"),
    [
        (["04", "10 EUROPEAN UNION", "agri-foodstuffs"], ["Politics", "European Union", "Agri-Foodstuffs"]),
        (["1011", "1016", "health"], ["European Union", "European Union", "Social Questions"]),
        (
            ["http://eurovoc.europa.eu/2623", "1764", "x"],
            ["Finance", "Social Questions", None],
        ),  # insurance, young people
        (["insurance premium", "Poitou-Charentes"], ["Finance", "Geography"]),
        ([], []),
    ],
)
def test_labels_of_any_level_have_a_domain(labels, domains):
    assert list(domains_of(labels).values()) == domains


# --- which speeches are classified ------------------------------------------------------------------------------------
def test_topics_are_mapped_or_classified():
    transport = domain_descriptions()["Transport"]
    rows = [("Energy", "zzz", "z"), ("Health", transport, transport), (None, "x", None)]
    frame = pd.DataFrame(rows, columns=["cap_topic", "text", "section"], index=[5, 7, 9])
    classifier = EmbeddingTopics(WordEncoder())
    found = topics.assign_topics(frame, classifier)
    assert found["topic"].tolist()[:2] == ["Energy", "Transport"] and found.index.tolist() == [5, 7, 9]
    assert found["topic_method"].tolist() == ["direct", "embedding", "embedding"] and found["topic_score"].iat[0] == 1
    assert (topics.assign_topics(frame, classifier, classify_all=True)["topic_method"] == "embedding").all()
    assert topics.assign_topics(frame[:0], classifier).empty


def test_what_a_direct_mapping_costs():
    rows = [
        ("Energy", "Energy", "Energy"),
        ("Energy", "Energy", "Finance"),
        ("Labor", topics.CAP_TO_EUROVOC["Labor"], "Economics"),
    ]
    opinions = pd.DataFrame(rows, columns=["cap_topic", "direct", "classified"])
    cost = topics.direct_cost(opinions).set_index("cap_category")
    assert cost.loc["Energy", ["speeches", "agreement", "unreachable", "commonest_other"]].tolist() == [
        2,
        0.5,
        0.5,
        "Finance",
    ]
    assert cost.loc["Labor", ["agreement", "unreachable"]].tolist() == [0, 0]
    table = topics.confusion(opinions)
    assert table.shape == (2, 21) and table.to_numpy().sum() == 3 and list(table.columns[-8:]) == list(topics.UNREACHABLE)
    assert topics.agreement(opinions)["agreement"] == 0.3333 and topics.agreement(opinions[:0]) == {}
    assert topics.direct_cost(opinions[:0]).empty


def test_a_second_opinion_is_a_sample_of_mapped_speeches():
    frame = pd.DataFrame({"cap_topic": ["Energy", "Health", None] * 10, "text": "gas", "section": None})
    opinions = topics.second_opinion(frame, EmbeddingTopics(WordEncoder()), at_most=4, seed=1)
    assert len(opinions) == 4 and set(opinions["direct"]) == {"Energy"} and opinions["classified"].notna().all()
    assert topics.second_opinion(frame[frame["cap_topic"].isna()], None, 4, 1).empty


# --- the embedding classifier -----------------------------------------------------------------------------------------
def test_embedding_depends_on_the_speech_alone_and_knows_no_empty_text():
    classifier = EmbeddingTopics(WordEncoder())
    texts, titles = [*domain_descriptions().values(), ""], [*domain_descriptions().values(), "Health"]
    found = classifier.classify(texts, titles)
    assert found["topic"].tolist() == [*domain_descriptions(), None] and np.isnan(found["score"].iat[-1])
    assert classifier.classify(texts[3:4], titles[3:4])["score"].iat[0] == found["score"].iat[3]
    assert classifier.classify(texts[:1], [""])["topic"].notna().all()


# --- KEVLAR -----------------------------------------------------------------------------------------------------------
@contextmanager
def service(answer):
    """A server whose `POST /api/predict` gives `answer(body, headers)`: (status, JSON or text). Yields its URL and calls."""
    calls = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            calls.append((self.path, body, self.headers.get("Token")))
            status, content = answer(body, self.headers)
            data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", calls
    finally:
        server.shutdown()
        server.server_close()


CONCEPTS = [
    {"label": "4657", "score": 0.6, "mt": {"label": "4816"}, "do": {"label": "48", "description": "TRANSPORT"}},
    {"label": "2623", "score": 0.5},  # no levels in the answer: our table knows the concept (insurance premium)
    {"label": "1764", "score": 0.4, "mt": {"label": "2826", "description": "social affairs"}},
    {"label": "3244", "score": 0.3},
    {"label": "not a concept", "score": 0.9},
]


def test_kevlar_asks_as_the_service_wants_and_takes_the_best_concept(monkeypatch):
    monkeypatch.setenv(KEVLAR_TOKEN, "secret")
    with service(lambda *_: (200, CONCEPTS)) as (url, calls):
        classifier = topic_classifier("kevlar", url=f"{url}/", model="en")
        found = classifier.classify([TRAINS, TRAINS, "  "], ["Rail", "Rail", "Rail"])
        path, body, token = calls[0]
        assert (path, token) == ("/api/predict", "secret") and "secret" not in classifier.signature
        assert body == {"text": TRAINS, "title": "Rail", "model": "en", "top_k": 50, "threshold": 0.0, "greedy": False}
        assert found["topic"].tolist() == ["Transport", "Transport", None] and found["score"].tolist()[:2] == [0.6, 0.6]
        assert len(calls) == 1  # equal texts are asked once, empty ones never
        topic_classifier("kevlar", url=url, model="en").classify([TRAINS], ["Rail"])
        assert len(calls) == 1  # nor again in another run
        summed = topic_classifier("kevlar", url=url, model="en", rule="sum").classify([TRAINS], ["Rail"])
        assert (summed["topic"].iat[0], summed["score"].iat[0]) == ("Finance", 0.8)


def test_kevlar_goes_on_where_it_broke_off():
    def once(body, _):
        return (200, CONCEPTS) if body["text"] == TRAINS else (400, '{"error": "unknown model"}')

    with service(once) as (url, calls):
        classifier = KevlarTopics(url, "en", threads=1)
        with pytest.raises(ValueError, match=r"400 .*unknown model.*api/models"):
            classifier.classify([TRAINS, "Second.", "Third."], ["", "", ""])
        assert classifier.classify([TRAINS], [""])["topic"].tolist() == ["Transport"]
        assert sum(body["text"] == TRAINS for _, body, _ in calls) == 1


@pytest.mark.parametrize(
    ("status", "content", "message"),
    [
        (500, "boom", f"wrong {KEVLAR_TOKEN}"),
        (200, "<html>", "expected a list"),
        (200, {"detail": "x"}, "expected a list"),
    ],
)
def test_kevlar_says_what_went_wrong(status, content, message):
    with service(lambda *_: (status, content)) as (url, _), pytest.raises(ValueError, match=message):
        KevlarTopics(url, "en").classify([TRAINS], [""])


def test_kevlar_without_a_concept_or_a_service(monkeypatch):
    with service(lambda *_: (200, [])) as (url, _):
        found = KevlarTopics(url, "en").classify([TRAINS], [""])
        assert found["topic"].tolist() == [None] and found["score"].isna().all()
    with pytest.raises(ConnectionError, match="is the KEVLAR service running"):
        KevlarTopics(url, "en").classify(["Another."], [""])
    monkeypatch.setattr("parliabench_utils.corpus.topics.TIMEOUT", 0.2)
    waiting = threading.Event()
    with (
        service(lambda *_: (waiting.wait(1), (200, []))[1]) as (url, _),
        pytest.raises(ConnectionError, match="ReadTimeout"),
    ):
        KevlarTopics(url, "en").classify([TRAINS], [""])


# --- a sequence classifier --------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def sequence_classifier(tmp_path_factory):
    """A function that saves a tiny random BERT with given labels as safetensors and returns its folder."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    from parliabench_utils.models.embeddings import encoder_folder

    def save(labels, several=True):
        folder = tmp_path_factory.mktemp("classifier")
        tokenizer = AutoTokenizer.from_pretrained(encoder_folder("all-MiniLM-L6-v2"))
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
            max_position_embeddings=64, id2label=dict(enumerate(labels)), initializer_range=1.0,
            problem_type="multi_label_classification" if several else "single_label_classification",
        )  # fmt: skip
        BertForSequenceClassification(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        assert (folder / "model.safetensors").is_file()
        return str(folder)

    return save


def test_a_sequence_classifier_with_concepts(sequence_classifier):
    folder = sequence_classifier(["2623", "1764", "2439", "no concept"])
    classifier = topic_classifier("transformers", model=folder)
    texts = [TRAINS, "Word " * 500, "My Lords, insurance.", ""]
    found = classifier.classify(texts, ["Rail"] * 4)
    assert set(found["topic"][:3]) <= {"Finance", "Social Questions", "Geography"} and found["topic"].iat[3] is None
    assert found["score"][:3].between(0, 1).all() and "labels:4,1 unknown" in classifier.signature
    alone = topic_classifier("transformers", model=folder)._predict_all([(texts[2], "Rail")])
    assert next(iter(alone))[1] == pytest.approx(found["score"].iat[2], abs=1e-5)


def test_a_sequence_classifier_with_domains(sequence_classifier):
    classifier = topic_classifier("transformers", model=sequence_classifier(list(DOMAIN_CODES.values()), several=False))
    assert classifier.classify([TRAINS], ["Rail"])["topic"].iat[0] in topics.EUROVOC_DOMAINS
    assert sum(classifier._probabilities([(TRAINS, "Rail")])[0]) == pytest.approx(1, abs=1e-5)


def test_labels_that_are_not_eurovoc_are_refused(sequence_classifier):
    with pytest.raises(ValueError, match="no label is a EuroVoc"):
        topic_classifier("transformers", model=sequence_classifier(["LABEL_A", "LABEL_B"])).classify([TRAINS], [""])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "kevlar", "model": "en"}, "needs topic_model and topic_url"),
        ({"name": "transformers"}, "needs topic_model"),
        ({"name": "guess"}, "one of"),
        ({"name": "embedding", "rule": "worst"}, "one of"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        topic_classifier(**settings)


def test_a_cached_topic_that_changed_is_asked_for_again(tmp_path):
    from parliabench_utils.corpus.topics import _remembered

    asked = []

    def answer(items):
        asked.extend(items)
        return [("Law", 0.5) if "law" in text else (None, float("nan")) for text, _ in items]

    def topics():
        return _remembered("s", ["A law.", "Trees.", "A law too."], ["a", "b", "c"], answer)["topic"].tolist()

    assert topics() == topics() == ["Law", None, "Law"] and len(asked) == 3
    (file,) = (tmp_path / "cache/topics").glob("*.partial")
    lines = file.read_text().splitlines(keepends=True)
    file.write_text(lines[0].replace("Law", "Trade") + lines[1] + lines[2] + lines[2] + "[]\n")
    with pytest.warns(UserWarning, match="3 cached topics are damaged and are asked for again"):
        assert topics() == ["Law", None, "Law"]
    assert len(asked) == 4
