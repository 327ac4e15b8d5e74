"""Nothing of the machine and no secret in what a run keeps: manifests, executed notebooks and their logs go through here as they
are written. Code that needs the real path or password still has it.

>>> scrub("asked http://ann:secret@127.0.0.1:9/v1?api_key=abc")
'asked http://127.0.0.1:9/v1?api_key=[removed]'
>>> scrub({"corpus": str(project_root() / "data/ParlaMint-GB")})
{'corpus': 'data/ParlaMint-GB'}
"""

import json
import os
import re
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import parse_qsl, quote, unquote

from parliabench_utils.run.artefacts import write_text
from parliabench_utils.run.project import outputs_root, project_root

REMOVED = "[removed]"
SHORTEST_SECRET = 6  # characters; a shorter one is removed from URLs only, as it may be part of a word
SECRET_NAME = r"[\w.-]*(?:key|token|secret|passw|pwd|auth|signature|credential|session)[\w.-]*"
_USER_INFO = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#\"'<>`]*@")
_QUERY = re.compile(rf"([?&;]{SECRET_NAME}=)(?!\[removed)[^&\s\"'<>#;)\]]+", re.I)
_SCHEME = r"(?:bearer|basic|token)\s"
_HEADER = re.compile(
    rf"""((?:authorization|x-api-key|api[-_ ]?key)["']?\s*[:=]\s*["']?(?:{_SCHEME}+)?)"""
    rf"""(?!\[removed|{_SCHEME})[^\s"',;}}\]]+""",
    re.I,
)
_TOKEN = re.compile(r"\b(?:sk-|hf_|ghp_|github_pat_|glpat-|xox[bp]-)[A-Za-z0-9_-]{16,}")
_ESCAPE = r"\x1b\[[\d;]*m"  # a traceback colours its paths
_PART = r"[^\s/\"'<>|:,;()\[\]{}*?\\`\x1b]+"
_END = r"(?![\w-]|\.\w)"  # a place ends here: /tmp is no part of /tmpfs
PICTURES = {"image/png", "image/jpeg", "application/pdf"}
COMMON_ACCOUNTS = {"root", "user", "admin", "runner", "ubuntu", "jovyan", "localhost", "nobody", "home"}


def without_credentials(text: str) -> str:
    """`text` without user names and passwords of URLs, secret query values, authorization headers and tokens of known forms."""
    text = _USER_INFO.sub(r"\1", text)
    text = _QUERY.sub(rf"\1{REMOVED}", text)
    return _TOKEN.sub(REMOVED, _HEADER.sub(rf"\1{REMOVED}", text))


class Scrubber:
    """Scrubs whatever a run with these parameters writes. The passwords and keys in their URLs, and the environment's, are removed
    wherever they stand.
    """

    def __init__(self, parameters: Mapping[str, Any] | None = None):
        secrets = _secrets_in(parameters or {}) | _environment_secrets()
        self.hidden = dict.fromkeys(secrets, REMOVED) | _spaced_paths(parameters or {})
        self.places = _places()
        self.known, self.other, self.accounts = _known_places(tuple(self.places)), _other_places(), _accounts()

    def __call__(self, value: Any) -> Any:
        """`value` with every text in it scrubbed, keys of dictionaries too; numbers, pictures and other things as they are."""
        if isinstance(value, str | Path):
            return self.text(str(value))
        if isinstance(value, Mapping):
            return {self(key): item if str(key) in PICTURES else self(item) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return type(value)(self(item) for item in value)
        return value

    def text(self, text: str) -> str:
        """`text` without credentials, and with places by what they are: `notebooks/x.py` of the project, `outputs/demo`, `cache`,
        `tmp`, `site-packages/torch`, `~/corpora`; of any other absolute path the last part.
        """
        text = self.without_secrets(text)
        if "/" in text:
            text = self.known.sub(self._named, text)
            text = self.other.sub(lambda found: f"{found['before']}…/{_anonymous(found['last'])}", text)
        return self.accounts.sub("user", text) if self.accounts else text

    def without_secrets(self, text: str) -> str:
        """`text` without credentials; paths as they are, for whoever sits at this machine."""
        for hidden in sorted(self.hidden, key=len, reverse=True):
            text = text.replace(hidden, self.hidden[hidden])
        return without_credentials(text)

    def _named(self, found: re.Match[str]) -> str:
        groups = found.groupdict()
        called, rest = self.places[groups.get("long") or groups.get("short")], found["rest"]
        if called == ".":
            return rest.lstrip("/") or "."
        return called + (rest if called in ("outputs", "python", "site-packages") else _anonymous(rest))


def scrub(value: Any) -> Any:
    """`value` as a `Scrubber` that knows no parameters leaves it."""
    return Scrubber()(value)


def _secrets_in(parameters: Mapping[str, Any]) -> set[str]:
    """The passwords and keys that stand in URLs among the parameters, as they are written and as they are sent."""
    found: set[str] = set()
    for value in parameters.values():
        if isinstance(value, str) and "://" in value:
            authority, _, query = value.partition("://")[2].partition("?")
            info = re.split(r"[/#]", authority)[0].rpartition("@")[0]
            keys = [key for name, key in parse_qsl(query.partition("#")[0]) if re.fullmatch(SECRET_NAME, name, re.I)]
            for secret in [info.partition(":")[2], *keys]:
                found |= {secret, unquote(secret), quote(unquote(secret), safe="")}
    return {secret for secret in found if len(secret) >= SHORTEST_SECRET}


def _environment_secrets() -> set[str]:
    name = re.compile(r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.I)
    return {value for key, value in os.environ.items() if name.search(key) and len(value) >= 8}


def _spaced_paths(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Absolute paths with a blank in them among the parameters: in running text nobody could tell where they end."""
    paths = [v for v in parameters.values() if isinstance(v, str) and v.startswith("/") and " " in v]
    return {path: f"…/{Path(path).name}" for path in paths if not any(path.startswith(known) for known in _places())}


def _places() -> dict[str, str]:
    """Folder of this machine → what it is called, longest first; links both as they are named and as they resolve."""
    named = {
        project_root(): ".",
        outputs_root(): "outputs",
        Path(os.environ.get("PARLIABENCH_OUTPUTS") or outputs_root()): "outputs",
        _cache_root(): "cache",
        Path(tempfile.gettempdir()): "tmp",
        Path("/tmp"): "tmp",
        Path("/var/tmp"): "tmp",
        Path.home(): "~",
        Path(sys.prefix): "python",
        Path(sys.base_prefix): "python",
        Path(sysconfig.get_path("stdlib")): "python",
    }
    named |= {Path(sysconfig.get_path(kind)): "site-packages" for kind in ("purelib", "platlib")}
    both = {str(form): called for path, called in named.items() for form in (path.absolute(), path.resolve())}
    both |= {quote(path): called for path, called in both.items()}
    return {path: both[path] for path in sorted(both, key=len, reverse=True) if path != "/"}


def _cache_root() -> Path:
    from platformdirs import user_cache_path

    return Path(os.environ.get("PARLIABENCH_CACHE") or user_cache_path("parliabench"))


@lru_cache(maxsize=8)
def _known_places(places: tuple[str, ...]) -> re.Pattern[str]:
    """A known folder and what follows it. One of a single part, as /tmp, only where no longer path leads to it."""
    long, short = ("|".join(re.escape(p) for p in places if (p.count("/") > 1) == deep) for deep in (True, False))
    alone = r"(?:(?<![\w.~/-])|(?<=\dm)|(?<=;m)|(?<=\[m)|(?<=//))"
    kinds = [rf"(?P<long>{long})"] * bool(long) + [rf"{alone}(?P<short>{short})"] * bool(short)
    return re.compile(rf"(?:file://)?(?:{'|'.join(kinds)}){_END}(?P<rest>(?:/{_PART})*)")


@lru_cache(maxsize=1)
def _other_places() -> re.Pattern[str]:
    """An absolute path below a folder that this or a usual machine has at its root; devices and `/proc` name nobody."""
    usual = {
        "home",
        "Users",
        "Volumes",
        "mnt",
        "media",
        "opt",
        "srv",
        "scratch",
        "data",
        "usr",
        "var",
        "private",
        "tmp",
    }
    tops = sorted((usual | {path.name for path in Path("/").iterdir()}) - {"dev", "proc", "sys", ""})
    start = rf"(?P<before>^|[^\w.~:/<\x1b-]|{_ESCAPE}|file://|\s-[A-Z])"
    return re.compile(rf"{start}/(?:{'|'.join(map(re.escape, tops))})(?:/{_PART})*/(?P<last>{_PART})", re.M)


def _anonymous(path: str) -> str:
    """Folders that are called after the account, such as `torchinductor_ann`, without its name."""
    for name in _names():
        path = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", "user", path)
    return path


@lru_cache(maxsize=1)
def _names() -> tuple[str, ...]:
    """Names of the account and of the machine, common ones left out."""
    found = {os.environ.get(key, "") for key in ("USER", "LOGNAME", "USERNAME", "HOSTNAME")} | {Path.home().name}
    hosts = {socket.gethostname(), os.uname().nodename}
    found |= hosts | {host.partition(".")[0] for host in hosts}
    return tuple(
        sorted((name for name in found if len(name) > 1 and name.lower() not in COMMON_ACCOUNTS), key=len, reverse=True)
    )


@lru_cache(maxsize=1)
def _accounts() -> re.Pattern[str] | None:
    """An account or host name where it is one: in `ann@host`, or anywhere if no word looks like it (`ab12345`, `gpu-node-7`)."""
    names = [re.escape(name) for name in _names()]
    marked = [re.escape(name) for name in _names() if len(name) > 3 and re.search(r"[\d_.-]", name)]
    kinds = [rf"\b(?:{'|'.join(names)})(?=@\w)|(?<=\w@)(?:{'|'.join(names)})\b"] if names else []
    kinds += [rf"(?<![\w-])(?:{'|'.join(marked)})(?![\w-])"] if marked else []
    return re.compile("|".join(kinds)) if kinds else None


class ScrubbedStream:
    """A text stream that scrubs whole lines before it writes them: a path that comes in two pieces is still one."""

    def __init__(self, stream: TextIO, scrubber: Scrubber):
        self.stream, self.scrubber, self._unfinished = stream, scrubber, ""

    def write(self, text: str) -> None:
        """Write the lines that are whole, keep the last one back."""
        lines, end, self._unfinished = (self._unfinished + text).rpartition("\n")
        self.stream.write(self.scrubber.text(lines) + end)

    def flush(self) -> None:
        """Flush what was written."""
        self.stream.flush()

    def finish(self) -> None:
        """Write the last line, whole or not."""
        self.stream.write(self.scrubber.text(self._unfinished))
        self._unfinished = ""
        self.stream.flush()


class ScrubbedNotebooks:
    """Papermill's writer of executed notebooks: each time one is saved, after every cell, it is scrubbed and put in place whole.

    papermill.execute_notebook(source, ScrubbedNotebooks.target(executed, scrubber), …)
    """

    SCHEME = "scrubbed:"

    def __init__(self, scrubber: Scrubber):
        self.scrubber = scrubber

    @classmethod
    def target(cls, path: Path, scrubber: Scrubber) -> str:
        """`path` as an output for papermill, which this class writes from now on."""
        from papermill.iorw import papermill_io

        papermill_io.register(cls.SCHEME, cls(scrubber))
        return f"{cls.SCHEME}{path}"

    def write(self, text: str, path: str) -> None:
        """`text` is a notebook as JSON."""
        target = Path(path.removeprefix(self.SCHEME))
        notebook = self.scrubber(json.loads(text))
        source = f"notebooks/{target.stem.partition('-')[0]}.py"
        named = {"input_path": source, "output_path": f"notebooks/{target.name}"}
        notebook["metadata"]["papermill"] = notebook["metadata"].get("papermill", {}) | named
        write_text(target, json.dumps(notebook, ensure_ascii=False, indent=1) + "\n")

    def pretty_path(self, path: str) -> str:
        """The path as papermill's own log has it."""
        return path.removeprefix(self.SCHEME)
