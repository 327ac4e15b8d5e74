"""XML for corpora small enough to read in a test, made-up rows of a data set, and an encoder without weights."""

import numpy as np
import pandas as pd

from parliabench_utils.corpus.dataset import split, to_records
from parliabench_utils.corpus.prompts import PromptRules, draw_prompts

TEI = 'xmlns="http://www.tei-c.org/ns/1.0"'
XI = 'xmlns:xi="http://www.w3.org/2001/XInclude"'
PEOPLE = """
<listOrg>
  <org xml:id="GoGB" role="government"><orgName full="yes">Government</orgName></org>
  <org xml:id="parliament.HC" role="parliament" ana="#parla.lower"><orgName full="yes">House of Commons</orgName></org>
  <org xml:id="party.CON" role="politicalParty"><orgName full="yes">Conservative</orgName><orgName full="abb">CON</orgName>
    <state type="politicalOrientation"><state type="Wikipedia" ana="#orientation.CR"/></state>
    <state type="CHES"><state type="variable"><state type="value" ana="#orientation.FL"/></state></state></org>
  <org xml:id="party.LD" role="politicalParty"><orgName full="yes">Liberal Democrat</orgName><orgName full="abb">LD</orgName>
    <state type="politicalOrientation"><state type="Wikipedia" ana="#orientation.CCL"/></state></org>
  <org xml:id="party.BT" role="politicalParty"><orgName full="yes">Tent</orgName><orgName full="abb">BT</orgName>
    <state type="politicalOrientation"><state type="encoder" ana="#orientation.BT"/></state></org>
</listOrg>
<listPerson>
  <person xml:id="Ada"><persName><forename>Ada</forename><surname>Example</surname></persName><sex value="F"/>
    <affiliation role="member" ref="#parliament.HC" from="2015-05-07"/>
    <affiliation role="member" ref="#party.CON" from="2015-05-07" to="2019-09-03"/>
    <affiliation role="member" ref="#party.LD" from="2019-09-03"/>
    <affiliation role="member" ref="#GoGB" from="2018-01-09" to="2019-07-24"/></person>
  <person xml:id="Ben"><persName><forename>Ben</forename><surname>Sample</surname></persName><sex value="M"/>
    <affiliation role="member" ref="#party.BT" from="2015"/>
    <affiliation role="minister" from="2019-01" to="2019-12-31"><orgName>Office</orgName></affiliation></person>
</listPerson>
"""


def root_xml(includes: list[str], people: str = PEOPLE, identity: str = "ParlaMint-GB") -> str:
    """A root file with its lists embedded, as release 2.1 has them."""
    links = "".join(f'<xi:include {XI} href="{href}"/>' for href in includes)
    header = f"<teiHeader><profileDesc><particDesc>{people}</particDesc></profileDesc></teiHeader>"
    return f'<teiCorpus {TEI} xml:id="{identity}">{header}{links}</teiCorpus>'


def sitting_xml(body: str, name: str = "ParlaMint-GB_2019-03-05-commons", day: str = "2019-03-05", meeting: str = "") -> str:
    """A sitting file around the XML of its body."""
    title = f"<fileDesc><titleStmt>{meeting}</titleStmt></fileDesc>"
    setting = f'<profileDesc><settingDesc><setting><date when="{day}"/></setting></settingDesc></profileDesc>'
    head = f"<teiHeader>{title}{setting}</teiHeader>"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<TEI {TEI} xml:id="{name}">{head}<text><body>{body}</body></text></TEI>'


def u(number, text: str, who: str | None = "Ada", ana: str = "#regular") -> str:
    """An utterance with the id `u<number>`."""
    speaker = f' who="#{who}"' if who else ""
    return f'<u xml:id="u{number}" ana="{ana}"{speaker}><seg>{text}</seg></u>'


def debate(*parts: str, head: str | None = "Rural Buses") -> str:
    """A div of utterances and notes under a heading."""
    return f"<div type='debateSection'>{f'<head>{head}</head>' if head else ''}{''.join(parts)}</div>"


class LetterEncoder:
    """A vector of letter counts: equal texts are nearest, no weights needed."""

    signature = "letters"

    def encode(self, texts):
        """float32 unit rows (n_texts, 26)."""
        rows = np.array([[text.count(chr(97 + i)) + 1e-3 for i in range(26)] for text in texts], dtype=np.float32)
        return rows.reshape(-1, 26) / np.linalg.norm(rows.reshape(-1, 26), axis=1, keepdims=True)


# --- rows of a data set -----------------------------------------------------------------------------------------------
PARTIES = ("Conservative", "Labour", "Green Party")


def speeches(n=240, seed=0):
    """Utterances of three parties in twelve sittings, as notebook 01 writes them."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        party = rng.choice(PARTIES, p=[0.6, 0.3, 0.1])
        day = int(rng.integers(12))
        rows.append(
            {
                "speech_id": f"u{i:03d}",
                "sitting_id": f"day{day}",
                "date": pd.Timestamp("2019-01-01") + pd.Timedelta(days=day),
                "house": ["House of Commons", "House of Lords"][day % 2],
                "section": f"Debate {rng.integers(3)}",
                "speaker_id": f"{party[:3]}{rng.integers(8)}",
                "party_code": party[:3],
                "party": party,
                "orientation": "Centre-left",
                "role": "regular",
                "kind": "speech",
                "prompts": ["Whether it is so."] if i % 5 == 0 else [],
                "text": f"Speech number {i} " + "word " * int(rng.integers(40, 90)),
                "cap_topic": rng.choice(["Energy", "Health"]),
            }
        )
    return pd.DataFrame(rows)


def with_topics(frame):
    """The rows with a topic each, as `assign_topics` adds it."""
    return frame.assign(topic=frame["cap_topic"], topic_method="direct", topic_score=1.0, n_words=50)


def drawn(seed=42, **rules):
    """(train, test, prompts, report) of a random split."""
    train, test = (pd.DataFrame(to_records(with_topics(part))) for part in split(speeches(), 0.7, "random", 1))
    prompts, report = draw_prompts(train, test, PromptRules(**({"n_prompts": 20, "min_context_speeches": 3} | rules)), seed)
    return train, test, prompts, report
