"""`kohort completion`: prints the script that makes a shell complete commands, options, topics and groups."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")


@click.command(epilog="Example: kohort completion bash > ~/.local/share/bash-completion/completions/kohort")
@click.argument("shell", type=click.Choice(SHELLS), metavar="bash|zsh|fish")
def command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  kohort completion bash > ~/.local/share/bash-completion/completions/kohort
    zsh:   kohort completion zsh > a file _kohort in a folder of $fpath
    fish:  kohort completion fish > ~/.config/fish/completions/kohort.fish
    """
    from click.shell_completion import get_completion_class

    from kohort.cli.commands import command as kohort
    from kohort.cli.main import COMPLETION

    script = get_completion_class(shell)
    assert script is not None, shell
    print(script(kohort, {}, "kohort", COMPLETION).source())
