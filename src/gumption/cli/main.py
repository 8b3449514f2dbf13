"""The `gumption` command: one file per subcommand, errors in one readable line.

Exit codes: 0 done; 1 a check found something wrong; 2 wrong usage, configuration or input; 3 the run failed;
130 interrupted (a checkpoint is written, `gumption resume` goes on).
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from gumption import __version__
from gumption.cli.eval import eval_command
from gumption.cli.explain import explain_command
from gumption.cli.plan import plan_command
from gumption.cli.problems import problems_app
from gumption.cli.report import report_command
from gumption.cli.simulate import simulate_command
from gumption.cli.train import resume_command, train_command

app = typer.Typer(
    name="gumption",
    help="Reinforcement learning for language models that spends every rollout, token and FLOP where it teaches most.",
    epilog=(
        "Start with: gumption train    (a tiny model, a few minutes on two CPU cores)\n\n"
        "Exit codes: 0 done · 1 a check found something wrong · 2 wrong usage, configuration or input · "
        "3 the run failed · 130 interrupted, can be resumed"
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"gumption {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("train")(train_command)
app.command("resume")(resume_command)
app.command("eval")(eval_command)
app.add_typer(problems_app, name="problems")
app.command("report")(report_command)
app.command("explain")(explain_command)
app.command("simulate")(simulate_command)
app.command("plan")(plan_command)


def main() -> None:
    """Run the command line; turn expected errors into one line and an exit code."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        app()
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except (ValueError, FileExistsError, FileNotFoundError, PermissionError, NotADirectoryError) as error:
        _debug()
        _fail(str(error), 2)
    except (OSError, RuntimeError, MemoryError) as error:
        _debug()
        _fail(f"the run failed: {error or type(error).__name__}", 3)


def _debug() -> None:
    if os.environ.get("GUMPTION_DEBUG"):
        import traceback

        traceback.print_exc()


def _fail(message: str, code: int) -> None:
    print(f"gumption: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
