# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Commands out of shell text, as a shell would split them, and nothing that it would compute.

Quotes, backslashes, continued lines and comments are understood, and where output goes
(``> file``, ``2>&1``, ``| tee file``) is left out. Whatever only a running shell can know
(a variable, a substitution, what comes in by ``<``) is an error, never a guess.
"""

from __future__ import annotations

import re

from cam_hccl_plugin.errors import PlanError

_REMEDY = "give the command with everything filled in, e.g. what a script prints with DRY_RUN=1"
_BLANK, _SEPARATORS, _REFUSED = " \t", "\n;&", "|<>()`"
_ENDS = (*_BLANK, *_SEPARATORS)
_PARAMETERS = "_{(@*?#$!"
_REDIRECTION = re.compile(r"(?:&>>?|[0-9]*>(?:>|&|\|)?)[ \t]*")
_BLANKS_TO_THE_END = re.compile(r"[ \t]+(?:\n|\Z)")


def split_commands(text: str) -> list[list[str]]:
    """The words of each command in ``text``.

    Raises:
        PlanError: a quote is never closed, or something in it needs a running shell.
    """
    return _Splitter(text).split()


class _Splitter:
    def __init__(self, text: str) -> None:
        self._text = text.removeprefix("\ufeff").replace("\r\n", "\n")
        self._at = 0
        self._word: list[str] | None = None
        self._words: list[str] = []
        self._piped = False
        self._commands: list[list[str]] = []

    def split(self) -> list[list[str]]:
        while self._at < len(self._text):
            redirection = _REDIRECTION.match(self._text, self._at)
            if redirection and (self._word is None or redirection[0][0] in ">&"):
                self._redirection(redirection.end())
            else:
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
        elif char == "|" and self._text[self._at + 1 : self._at + 2] != "|":
            self._end_command()
            self._piped = True
            self._at += 2 if self._text.startswith("|&", self._at) else 1
        elif char == "#" and self._word is None:
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end
        else:
            self._refuse(char, quoted=False)
            self._add(char)
            self._at += 1

    def _redirection(self, target: int) -> None:
        """Step over where output goes: the word at ``target`` is no word of the command."""
        self._end_word()
        self._at = target
        while self._at < len(self._text) and self._text[self._at] not in (*_ENDS, "|"):
            self._step(self._text[self._at])
        if self._word is None:
            raise self._error("> names no file")
        self._word = None

    def _add(self, text: str) -> None:
        self._word = [] if self._word is None else self._word
        self._word.append(text)

    def _end_word(self) -> None:
        if self._word is not None:
            self._words.append("".join(self._word))
        self._word = None

    def _end_command(self) -> None:
        self._end_word()
        if self._piped and self._words[:1] != ["tee"]:
            raise self._error("only tee is understood behind |", "leave | and the rest out")
        if self._words and not self._piped:
            self._commands.append(self._words)
        self._words, self._piped = [], False

    def _backslash(self) -> None:
        if _BLANKS_TO_THE_END.match(self._text, self._at + 1):
            raise self._error(
                "the backslash at the end has a blank behind it and does not continue the line",
                "remove the blank",
            )
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
        following = self._text[self._at + 1 : self._at + 2]
        if char == "$":
            known = _PARAMETERS if quoted else f"{_PARAMETERS}'\""
            if following.isalnum() or (following and following in known):
                shown = self._text[self._at : self._at + 20].split()[0]
                raise self._error(f"{shown} is left for a shell to fill in")
        elif char == "~" and not quoted and self._word is None and following in ("/", "", *_ENDS):
            raise self._error("~ is left for a shell to fill in")
        elif char == "`" or (not quoted and char in _REFUSED):
            raise self._error(f"{char} is something that only a running shell can do")

    def _error(self, what: str, remedy: str = _REMEDY) -> PlanError:
        line = self._text.count("\n", 0, self._at) + 1
        return PlanError(f"stdin, line {line}: {what}; {remedy}")
