"""An HTML page taken apart with the library's own parser, strictly: every element closes where it must."""

from __future__ import annotations

from html.parser import HTMLParser

_VOID = frozenset({"meta", "br", "line", "rect", "circle", "path"})


class Page(HTMLParser):
    """The elements of a page in order, with their attributes and the words inside."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.declarations: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == [], f"left open: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _VOID, f"`{tag}` closes itself"
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"`{tag}` closes nothing"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_decl(self, decl: str) -> None:
        self.declarations.append(decl)

    def all(self, tag: str) -> list[dict[str, str]]:
        """The attributes of every element of this name."""
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        """All words of the page."""
        return "".join(self.words)
