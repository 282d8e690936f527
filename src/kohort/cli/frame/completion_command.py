"""`kohort completion`: prints the script that makes a shell complete commands, options, topics and groups."""

from __future__ import annotations

import click

from kohort.cli.frame import COMPLETION

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

    script = get_completion_class(shell)
    assert script is not None, shell
    kohort = click.get_current_context().find_root().command
    print(script(kohort, {}, "kohort", COMPLETION).source())
