"""`python -m parliabench_utils run NOTEBOOK --profile P [--run NAME] [--model M --type T --shard K] [--set key=value]`.

`fetch-corpus` and `fetch-models` bring what the paper profile needs; `report` prints the headline table of a finished run; `annotate`
makes a form for human raters and reads their files back.
"""

import argparse
import io
import sys
from pathlib import Path

from parliabench_utils.run.artefacts import without_credentials
from parliabench_utils.run.params import RULES, parse_setting, plain_name
from parliabench_utils.run.project import lend_home
from parliabench_utils.run.runner import StageFailed, Stopped, run_notebook


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 when all went well, 1 when a stage failed, 2 for a wrong call, parameter, input or disk, 128 + a signal."""
    _print_anything()
    options = _parser().parse_args(arguments)
    try:
        lend_home()
        options.command(options)
    except StageFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (ValueError, OSError, RecursionError, Stopped) as error:
        print(f"error: {without_credentials(_one_line(error))}", file=sys.stderr)
        return error.code if isinstance(error, Stopped) else 2
    except KeyboardInterrupt:
        return 130
    return 0


def _one_line(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "an input file is nested too deeply to be read"
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.strerror:
        return " ".join(error.strerror.split())
    return " ".join(str(error).split())


def _print_anything() -> None:
    """A terminal that is not UTF-8 gets escapes for what it cannot show, instead of stopping the stage."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m parliabench_utils", description="ParliaBench")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run one notebook headlessly, or skip it when its outputs are valid")
    run.add_argument("notebook", help=f"one of {', '.join(RULES)}")
    run.add_argument("--profile", default="demo", help="folder of params/ (default: demo)")
    run.add_argument("--run", help="name of the folder under outputs/ (default: the profile's name)")
    run.add_argument("--model", help="only this model (03 to 07)")
    run.add_argument("--type", help="only this type: baseline, fine-tuned or human (04 to 07)")
    run.add_argument("--shard", type=int, help="only this shard of the prompts (04)")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a parameter; may be repeated")
    run.set_defaults(command=_run)
    corpus = commands.add_parser("fetch-corpus", help="download ParlaMint-GB into the data folder")
    corpus.add_argument("--data-root", default="data")
    corpus.add_argument("--release", default="5.0", help="2.1, 3.0, 4.0, 4.1 or 5.0")
    corpus.add_argument("--url", help="the archive's address, instead of the link on the release's item page")
    corpus.add_argument("--checksum", help="sha256:... or md5:...")
    corpus.set_defaults(command=_fetch_corpus)
    models = commands.add_parser("fetch-models", help="download models of params/models/ and record their revisions")
    models.add_argument("names", nargs="*")
    models.add_argument("--profile", help="all that this profile's notebooks load from a hub, encoders and judge too")
    models.set_defaults(command=_fetch_models)
    annotate = commands.add_parser("annotate", help="a blinded form for human raters; with --read, their agreement")
    annotate.add_argument("--run", default="demo")
    annotate.add_argument("--judge", default="smollm2-constrained", help="whose rubric raters get (params/judges)")
    annotate.add_argument("--points", type=int, default=10, choices=(5, 10))
    annotate.add_argument("--speeches", type=int, default=20, help="equally many of each model and type")
    annotate.add_argument("--seed", type=int, default=42)
    annotate.add_argument("--read", nargs="+", type=Path, metavar="FILE", help="the raters' filled-in files")
    annotate.set_defaults(command=_annotate)
    published = commands.add_parser("import-published", help="the authors' generated speeches as a run for 08 and 09")
    published.add_argument("file", type=Path, help="JSONL in the paper's format (section 3.3)")
    published.add_argument("--run", default="published", help="name of the new folder under outputs/")
    published.set_defaults(command=_import_published)
    report = commands.add_parser("report", help="print the headline table of a finished run and where its report is")
    report.add_argument("--run", default="demo")
    report.set_defaults(command=_report)
    return parser


def _run(options: argparse.Namespace) -> None:
    named = {key: getattr(options, key) for key in ("run", "model", "type", "shard")}
    given = {key: value for key, value in named.items() if value is not None}
    run_notebook(Path(options.notebook).stem, options.profile, dict(map(parse_setting, options.set)) | given)


def _fetch_corpus(options: argparse.Namespace) -> None:
    from parliabench_utils.corpus.download import fetch_corpus

    folder = fetch_corpus(options.data_root, options.release, options.url, options.checksum)
    print(f"the corpus is in {folder}")


def _fetch_models(options: argparse.Namespace) -> None:
    from parliabench_utils.models.loading import fetch_model, fetch_profile

    fetched = {name: fetch_model(name) for name in options.names} | (fetch_profile(options.profile) if options.profile else {})
    print(
        "\n".join(f"{name}: revision {commit}" for name, commit in fetched.items()) or "nothing to fetch: name models or a profile"
    )


def _annotate(options: argparse.Namespace) -> None:
    from parliabench_utils.results.annotation import read_annotation, write_annotation
    from parliabench_utils.run.project import outputs_root

    folder = outputs_root() / plain_name(options.run)
    if options.read:
        print(read_annotation(folder, options.read).round(3).set_index("dimension").T.to_string())
        return
    target = write_annotation(folder, options.judge, options.speeches, options.points, options.seed)
    print(f"give raters {target / 'form.html'}, or sheet.csv with rubric.csv; keep key.csv: it says who wrote what")


def _import_published(options: argparse.Namespace) -> None:
    from parliabench_utils.results.release import import_published
    from parliabench_utils.run.project import outputs_root

    folder = outputs_root() / plain_name(options.run)
    scores = import_published(options.file, folder)
    print(f"{len(scores):,} speeches to {scores['prompt_id'].nunique():,} prompts are in {folder}")
    if scores.attrs["ignored"]:
        print(f"scores that are none of the fourteen metrics were left out: {scores.attrs['ignored']}")


def _report(options: argparse.Namespace) -> None:
    from parliabench_utils.results.report import headline
    from parliabench_utils.run.project import outputs_root
    from parliabench_utils.run.record import check_inputs

    folder = outputs_root() / plain_name(options.run)
    printed = headline(folder)
    check_inputs("report", [folder / "tables/table02.csv", folder / "report.html"], folder)
    print(printed)
