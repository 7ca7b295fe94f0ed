# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Commands out of shell text, as a shell would split them, and nothing that it would compute.

Quotes, backslashes, continued lines and comments are understood. Whatever only a running
shell can know (a variable, a substitution, a redirection) is an error, never a guess.
"""

from __future__ import annotations

from cam_hccl_plugin.errors import PlanError

_REMEDY = "give the command with everything filled in, e.g. what a script prints with DRY_RUN=1"
_BLANK, _SEPARATORS, _REFUSED = " \t", "\n;&", "|<>()`"


def split_commands(text: str) -> list[list[str]]:
    """The words of each command in ``text``.

    Raises:
        PlanError: a quote is never closed, or something in it needs a running shell.
    """
    return _Splitter(text).split()


class _Splitter:
    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0
        self._word: list[str] | None = None
        self._words: list[str] = []
        self._commands: list[list[str]] = []

    def split(self) -> list[list[str]]:
        while self._at < len(self._text):
            self._step(self._text[self._at])
        self._end_command()
        return self._commands

    def _step(self, char: str) -> None:
        if char == "\\":
            self._backslash()
        elif char == "'":
            self._single_quotes()
        elif char == '"':
            self._double_quotes()
        elif char in _BLANK:
            self._end_word()
            self._at += 1
        elif char in _SEPARATORS:
            self._end_command()
            self._at += 1
        elif char == "#" and self._word is None:
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end
        else:
            self._refuse(char, quoted=False)
            self._add(char)
            self._at += 1

    def _add(self, text: str) -> None:
        self._word = [] if self._word is None else self._word
        self._word.append(text)

    def _end_word(self) -> None:
        if self._word is not None:
            self._words.append("".join(self._word))
        self._word = None

    def _end_command(self) -> None:
        self._end_word()
        if self._words:
            self._commands.append(self._words)
        self._words = []

    def _backslash(self) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following != "\n":
            self._add(following)
        self._at += 2

    def _single_quotes(self) -> None:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise self._error("a single quote is opened and never closed")
        self._add(self._text[self._at + 1 : end])
        self._at = end + 1

    def _double_quotes(self) -> None:
        start = self._at
        self._add("")
        self._at += 1
        while (char := self._text[self._at : self._at + 1]) != '"':
            if not char:
                self._at = start
                raise self._error("a double quote is opened and never closed")
            if char == "\\":
                following = self._text[self._at + 1 : self._at + 2]
                if following in ('"', "\\", "$", "`"):
                    self._add(following)
                elif following != "\n":
                    self._add(char + following)
                self._at += 2
                continue
            self._refuse(char, quoted=True)
            self._add(char)
            self._at += 1
        self._at += 1

    def _refuse(self, char: str, quoted: bool) -> None:
        if char == "$":
            following = self._text[self._at + 1 : self._at + 2]
            if following.isalnum() or following in ("_", "{", "(", "@", "*", "?", "#", "$", "!"):
                shown = self._text[self._at : self._at + 20].split()[0]
                raise self._error(f"{shown} is left for a shell to fill in")
        elif char == "`" or (not quoted and char in _REFUSED):
            raise self._error(f"{char} is something that only a running shell can do")

    def _error(self, what: str) -> PlanError:
        line = self._text.count("\n", 0, self._at) + 1
        return PlanError(f"stdin, line {line}: {what}; {_REMEDY}")
